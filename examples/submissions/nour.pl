use strict;
use warnings;

my @numbers = <STDIN>;
my $sum = 0;
$sum += $_ for @numbers;
print $sum, "\n";
