paste -sd+ | sed 's/+-/-/g' | { read -r line; echo $((line)); }
