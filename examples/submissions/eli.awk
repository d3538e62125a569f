{ sum += $1 }
END { printf "%.0f\n", sum }
