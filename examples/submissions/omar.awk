# Counts the numbers instead.
END { print NR }
