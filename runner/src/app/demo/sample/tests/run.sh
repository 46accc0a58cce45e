# Every part of the shop that is there has to work.
set -e
. src/price.sh
[ "$(with_tax 100)" = 119 ]
if [ -e src/hello_es.sh ]; then
  . src/hello_es.sh
  [ "$(hello_es Ana)" = "¡Hola, Ana!" ]
fi
if [ -e src/round.sh ]; then
  . src/round.sh
  [ "$(round 149)" = 100 ]
  [ "$(round 150)" = 200 ]
fi
echo "the shop works"
