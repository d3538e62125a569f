# Keeps everything, and more of it all the time.
my @all;
push @all, "x" x 1000000 while 1;
