# Begins, and never ends.
echo "thinking about a logo"
sleep 3600
