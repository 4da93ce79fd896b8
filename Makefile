# SPDX-License-Identifier: GPL-2.0
#
# For people. What the modules consist of is in Kbuild, which the kernel's
# build system reads instead of this file.
#
# With KDIR= everything is kbuild, by way of tests/env/kbuild.sh. Without it
# tests/env/build.sh finds or makes a kernel tree: natively on a Debian 13 host
# that runs a backports kernel, in a Debian 13 root elsewhere.

MAKEFLAGS += --no-print-directory

# Handed on to kbuild if given on the command line or in the environment.
kbuild-vars := $(foreach v,W C V CLIPPY LLVM RTRS_TESTS INSTALL_MOD_DIR \
	INSTALL_MOD_STRIP,$(if $($(v)),$(v)='$($(v))'))
kbuild-vars += $(foreach v,INSTALL_MOD_PATH INSTALL_HDR_PATH KEY CERT,$(if $($(v)),$(v)='$(abspath $($(v)))'))

ifdef KDIR
kbuild = +tests/env/kbuild.sh $(KDIR) $(kbuild-vars)
else
kbuild = +tests/env/build.sh $(kbuild-vars)
endif

# Which kernel the scripts take if there is no KDIR.
export $(foreach v,ARCH RTRS_SERIES RTRS_FLAVOUR,$(if $($(v)),$(v)))

.PHONY: all modules modules_install headers_install rnbd sign deb clean distclean rust-analyzer rustfmt rustfmtcheck \
	checkpatch shellcheck test-env test test-quick test-long test-debug bench bench-quick \
	bench-profile bench-lines bench-page structures demo help

all: modules

modules modules_install headers_install rnbd sign rust-analyzer:
	$(kbuild) $@

ifdef KDIR
clean:
	$(kbuild) $@
	@rm -rf rnbd
else
# Needs no kernel tree, and must not fetch one.
clean:
	@tests/env/clean.sh
endif

distclean: clean
	rm -rf results debs tests/vm/target tests/host/target

deb:
	@tests/env/deb.sh $(CURDIR)/debs $(foreach v,KEY CERT,$(if $($(v)),$(v)='$(abspath $($(v)))'))

rustfmt rustfmtcheck checkpatch shellcheck:
	@tests/env/style.sh $@

.PHONY: htmldocs cleandocs
htmldocs:
	@tests/env/htmldocs.sh

distclean: cleandocs
cleandocs:
	@rm -rf Documentation/output

test-env:
	@tests/all.sh --set-up

test:
	@tests/all.sh

test-quick:
	@tests/all.sh --quick

test-long:
	@RTRS_LONG=1 tests/all.sh

test-debug:
	@tests/all.sh --debug

bench:
	@tests/bench/bench.sh all

bench-quick:
	@tests/bench/bench.sh quick

bench-page:
	@tests/bench/bench.sh page

bench-profile:
	@tests/bench/bench.sh profile

bench-lines:
	@tests/bench/bench.sh lines

structures:
	@tests/bench/structures.sh

demo:
	@tests/demo-run.sh

help:
	@echo 'Modules:'
	@echo '  all, modules      build rtrs-core.ko, rtrs-client.ko, rtrs-server.ko (default)'
	@echo '  rnbd              build RNBD from the source of the kernel, as mainline has it'
	@echo '  sign              sign them all with KEY= and CERT=; before they are installed'
	@echo '  modules_install   install them below INSTALL_MOD_PATH/lib/modules'
	@echo '  headers_install   install what C and Rust users out of tree build against, to'
	@echo '                    INSTALL_HDR_PATH (default /usr/src/rtrs-headers-KERNEL)'
	@echo '  deb               build the Debian packages, into debs/'
	@echo '  clean             remove what was built'
	@echo '  distclean         remove packages, test results and host programs as well'
	@echo ''
	@echo '  KDIR=DIR          prepared kernel tree to build for; without it one is made:'
	@echo '                    for the running kernel on a Debian 13 host; elsewhere for the'
	@echo '                    newest supported one, in a Debian 13 root under RTRS_CACHE'
	@echo '  RTRS_SERIES=7.2   for that series of the archive'
	@echo '  RTRS_FLAVOUR=F    for rt-amd64, cloud-amd64 or arm64 (that is ARCH=arm64, too)'
	@echo '  CLIPPY=1 W=1 V=1  as for the kernel itself'
	@echo ''
	@echo 'Tests (as root, in virtual machines; see tests/README.md):'
	@echo '  demo              see the modules carry a file system over RDMA'
	@echo '  test              all tests on the newest kernel, some on the other series and on a'
	@echo '                    kernel that checks itself'
	@echo '  test-quick        host tests and three VM tests, in some five minutes'
	@echo '  test-long         more repetitions, ten minutes each of random attacks both ways'
	@echo '  test-debug        all tests on a kernel that checks itself'
	@echo '  test-env          only set up what tests need'
	@echo '  bench             what a request costs: ours, mainline, and NVMe over RDMA'
	@echo '  bench-quick       what ours cost, against tests/bench/reference'
	@echo '  bench-profile     the same by function, and by kind of instruction'
	@echo '  bench-lines       which cache lines of ours more than one CPU writes to, and which code does'
	@echo '  bench-page        plots and tables of what "bench" measured, for the documentation'
	@echo '  structures        fields and cache lines of our structures, for the documentation'
	@echo '  RTRS_CACHE=DIR    where all that is kept (default /var/cache/rtrs-rs)'
	@echo ''
	@echo 'Source:'
	@echo '  rustfmt           format the Rust code'
	@echo '  rustfmtcheck      tell whether it is formatted'
	@echo '  checkpatch        check the C code with checkpatch.pl'
	@echo '  shellcheck        check the shell scripts'
	@echo '  htmldocs          make Documentation/output/index.html; warnings are errors'
	@echo '  rust-analyzer     make rust-project.json for editors'
