# Gets it wrong at first, and right when it hears what is wrong.
if grep -q 'checks failed' "$AGENCY_PROMPT_FILE"; then
  echo "half a coin is rounded up, then"
  echo 'round() { echo $((($1 + 50) / 100 * 100)); }' > src/round.sh
else
  echo "dividing and multiplying should do"
  echo 'round() { echo $(($1 / 100 * 100)); }' > src/round.sh
fi
