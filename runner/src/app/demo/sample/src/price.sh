# The price of something with tax, in cents.
with_tax() { echo $(($1 + $1 * 19 / 100)); }
