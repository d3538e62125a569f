sum=0
while read -r number; do sum=$((sum + number)); done
echo "$sum"
