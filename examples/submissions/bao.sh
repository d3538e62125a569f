total=0
for number in $(cat); do
    total=$((total + number))
done
printf '%d\n' "$total"
