# Leaves the negative ones out.
$1 > 0 { sum += $1 }
END { printf "%.0f\n", sum }
