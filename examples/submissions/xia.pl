# Gives up.
my $sum = 0;
while (<STDIN>) { $sum += $_; die "a negative number\n" if $_ < 0; }
print "$sum\n";
