#!/usr/bin/perl
# SPDX-License-Identifier: GPL-2.0
#
# Writes to files what they do not accept, each input with one write(2). A shell
# cannot do that for all of these inputs.
#
# garbage.pl check FILE...
#	Writes every input to every file. Any result but EINVAL is printed and is a
#	failure; so is an error from an empty write.
# garbage.pl hammer SECONDS SEED DIR...
#	Until the time is over, reads files below the directories, as they come and
#	go, or writes garbage or one of the words on standard input to them.
#	Prints how often each result occurred, and how often each kind of file
#	accepted an input. An error that is not documented is a failure.

use strict;
use warnings;
use Errno qw(EACCES EBUSY ECONNRESET EEXIST EHOSTUNREACH EINVAL ENETUNREACH ENODEV ENOENT ENOMEM ENOTCONN
	EPROTO ESHUTDOWN ETIMEDOUT EUSERS);
use Fcntl;
use File::Basename;

# Some files accept a number: no number in this list is valid for any of them.
my @garbage = (
	"\n", "\n\n", " ", "\t", "x", "-", "--1", "-2", "-2\n", "1 1", "0 0\n", "0x1", "1e3", "1.0", "1,1",
	"1\n\n", "\n1", "99999999999999999999", "-99999999999999999999", "4294967296", "4294967297",
	"2147483648", "1\0", "\0", "\0001", "1\n\0", "\xff\xfe", "\x80\x81\x82", "rr\0", "\xc3\x28", "%s%n",
	"off0", "ON", "none", "round", "r", "min-", "RR: 0", "ip:", "gid:", "ip:999.1.1.1", "ip:10.9.0",
	"ip:10.9.0.1:80", "ip:10.9.0.1\@", "\@ip:10.9.0.1", "ip:10.9.0.1\@ip:10.9.0.1\@ip:10.9.0.1",
	"ip:10.9.0.1\@ip:fd09::1", "ip:10.9.0.1\@gid:fe80::1", "gid:fe80:zz", "ip:fd09::1%", "ib:10.9.0.1",
	"../../state", "/etc/passwd",
	# The longest input that sysfs accepts.
	(map { $_ x 4096 } ("A", "1", " ", "\n", "\0", "\xff")), "ip:" x 1365,
	pack("C*", map { ($_ * 167 + 13) % 256 } 0 .. 4095),
);

# put FILE INPUT: the errno of one write.
sub put
{
	my ($file, $input) = @_;

	sysopen(my $f, $file, O_WRONLY) or return $!;
	my $n = syswrite($f, $input);
	my $error = defined($n) ? 0 : $!;
	close($f);
	return $error;
}

sub printable
{
	my $text = substr($_[0], 0, 40);

	$text =~ s/([^ -~])/sprintf("\\x%02x", ord($1))/ge;
	return length($_[0]) > 40 ? "$text... (" . length($_[0]) . " bytes)" : $text;
}

sub check
{
	my $bad = 0;
	my $n = 0;

	for my $file (@_) {
		# An empty write is no input: sysfs does not pass it on.
		my $error = put($file, "");
		if ($error) {
			printf("%s: \"\": %s\n", $file, $error);
			$bad++;
		}
		for my $input (@garbage) {
			# These files accept numbers of any size.
			next if $file =~ m{/quotas/} && $input =~ /^[0-9]{1,18}\n?$/;
			# This file accepts a text, which ends at the first NUL byte and may be
			# empty.
			next if $file =~ m{/listen$} && $input =~ /^(1?\n?)(\0.*)?$/s;
			$error = put($file, $input);
			$n++;
			next if $error == EINVAL;
			printf("%s: \"%s\": %s\n", $file, printable($input), $error || "success");
			$bad++;
		}
	}
	print("$n writes\n");
	return $bad == 0;
}

sub files_below
{
	my @todo = @_;
	my @files;

	while (defined(my $dir = shift(@todo))) {
		opendir(my $d, $dir) or next;
		for my $name (readdir($d)) {
			next if $name =~ /^\./ || $name =~ /^(power|subsystem|uevent|device)$/;
			my $path = "$dir/$name";
			if (-d $path) {
				push(@todo, $path);
			} elsif (-f _) {
				push(@files, $path);
			}
		}
		closedir($d);
	}
	return @files;
}

# Errors other than EINVAL that a kind of file may return, see Documentation/ABI. For add_path the
# error may also be the server's reason.
my %documented = (
	"add_path" => [EEXIST, EUSERS, ESHUTDOWN, ETIMEDOUT, ECONNRESET, EHOSTUNREACH, ENETUNREACH, EPROTO, ENOMEM],
	"reconnect" => [ENOTCONN, EBUSY],
);

# expected FILE, ERROR, INPUT: may a write fail like this, or without INPUT a read?
sub expected
{
	my ($file, $error, $input) = @_;

	# The file was removed before or after it was opened.
	return 1 if !$error || $error == ENOENT || $error == ENODEV;
	if ($error == EACCES) {
		my $mode = (stat($file))[2];
		return !defined($mode) || !($mode & 0222) && defined($input);
	}
	return 0 unless defined($input);
	return 1 if $error == EINVAL;
	return grep { $error == $_ } @{ $documented{ basename($file) } // [] };
}

sub hammer
{
	my ($seconds, $seed, @dirs) = @_;
	my @words = <STDIN>;
	my $end = time() + $seconds;
	my %results;
	my $bad = 0;
	my $judge = sub {
		my ($file, $error, $input) = @_;

		return if expected(@_) || $bad++ >= 20;
		printf(STDERR "%s: %s: %s\n", $file, defined($input) ? '"' . printable($input) . '"' : "read", $error);
	};

	chomp(@words);
	srand($seed);
	while (time() < $end) {
		my @files = files_below(@dirs);
		for (1 .. 20) {
			last unless @files;
			my $file = $files[rand(@files)];
			if (rand() < 0.3) {
				my ($f, $text);
				if (sysopen($f, $file, O_RDONLY) && defined(sysread($f, $text, 1 + int(rand(8192))))) {
					$results{"read"}++;
				} else {
					my $error = $!;
					$results{$error}++;
					$judge->($file, $error);
				}
				next;
			}
			my $input = rand() < 0.4 ? $garbage[rand(@garbage)] : $words[rand(@words)];
			my $error = put($file, $input);
			$results{$error || "written"}++;
			$results{basename($file) . " took it"}++ unless $error;
			$judge->($file, $error, $input);
		}
	}
	printf("%d %s\n", $results{$_}, $_) for sort { $results{$b} <=> $results{$a} } keys(%results);
	return $bad == 0;
}

my $what = shift(@ARGV) // "";
my $ok = $what eq "check" ? check(@ARGV) : $what eq "hammer" ? hammer(@ARGV) : die("what?\n");
exit($ok ? 0 : 1);
