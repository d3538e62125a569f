use List::Util qw(sum0);

chomp(my @numbers = <STDIN>);
print sum0(@numbers), "\n";
