BEGIN { while (1) sum += 1 }
