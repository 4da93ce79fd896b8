#!/usr/bin/perl
# SPDX-License-Identifier: GPL-2.0
#
# The files of sysfs as Documentation/ABI has them.
#
# abi.pl list FILE...
#	Prints a line for each of them: mode ("0444", "-" for a directory), path and description,
#	separated by tabs. The path has words in angle brackets.
# abi.pl check FILE...
#	Reads lines with mode and path of files that are there, as "find -printf '%m %p\n'" prints
#	them. What differs from the documentation is printed and is a failure: a file that is not
#	documented, one that is documented and not there, and one with another mode.

use strict;
use warnings;

my %modes = ("RO" => "0444", "RW" => "0644", "RO, root only" => "0400");
my $modes = join("|", reverse(sort(keys(%modes))));

# Entries of a file: [mode, path, description].
sub entries
{
	my ($file) = @_;
	my @entries;

	open(my $f, "<", $file) or die "$file: $!\n";
	local $/ = "";
	my $entry = "";
	# An entry may have empty lines: the next one begins with "What:".
	for my $part (<$f>, "What:") {
		if ($part !~ /^What:/) {
			$entry .= $part;
			next;
		}
		my @paths = $entry =~ /^What:\s+(\S+)$/mg;
		my ($text) = $entry =~ /^Description:\s+(.*)/ms;
		for my $path (@paths) {
			my ($name) = $path =~ m{([^/]*)$};
			# One mode for all, or one for each name.
			my ($mode) = $text =~ /^\(($modes)\)/;
			($mode) = $text =~ /^\s*\Q$name\E: \(($modes)\)/m unless $mode;
			$name eq "" || $mode or die "$file: $path has no mode\n";
			push @entries, [$name eq "" ? "-" : $modes{$mode}, $path, $text =~ s/\s+/ /gr];
		}
		$entry = $part;
	}
	return @entries;
}

sub check
{
	my %seen;
	my $bad = 0;

	for my $line (<STDIN>) {
		my ($mode, $path) = $line =~ /^(\d+) (.*)$/ or die "not a mode and a path: $line";
		$mode = sprintf("%04o", oct($mode));
		my ($entry) = grep { $path =~ $_->[3] } @_;
		if (!$entry) {
			print "$path is not documented\n";
			$bad = 1;
			next;
		}
		$seen{$entry->[1]} = 1;
		next if $entry->[0] eq $mode;
		print "$path has mode $mode, documented is $entry->[0]\n";
		$bad = 1;
	}
	for my $entry (@_) {
		next if $entry->[0] eq "-" || $seen{$entry->[1]};
		print "$entry->[1] is documented, and not there\n";
		$bad = 1;
	}
	return $bad;
}

my $what = shift(@ARGV) // "";
my @all = map { entries($_) } @ARGV;

if ($what eq "list") {
	print join("\t", @$_), "\n" for @all;
} elsif ($what eq "check") {
	for my $entry (@all) {
		my $pattern = join("[^/]+", map { quotemeta } split(/<[^>]+>/, $entry->[1], -1));
		push @$entry, qr/^$pattern$/;
	}
	exit(check(@all));
} else {
	die "usage: abi.pl list|check FILE...\n";
}
