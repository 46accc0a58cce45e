# Does what it is told, and nothing else.
echo 'hello_es() { echo "¡Hola, $1!"; }' > src/hello_es.sh
echo "greeted in Spanish"
