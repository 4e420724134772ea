#!/bin/bash
# What tests/vm boots: Debian's kernel, a small Debian 12 for root, and an initramfs that finds it.
#
#   tests/vm/image.sh DIR
#
# Makes in DIR, unless it is there already (minutes; remove DIR for a newer Debian):
#
#   vmlinuz, initrd   the kernel, and busybox with the modules that tests/vm/init needs
#   root              an ext4: what an installed kvcachefs and the quickstart's runtime need, the kernel's NFS server with
#                     its tools, Python
#
# All from Debian's archive, by mmdebstrap; nothing of it is installed on this machine. The programs that this and the tests
# use are: packaging/install-deps.sh vm. As root.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
dir=$(mkdir -p "$1" && readlink -f "$1")
PATH=$PATH:/usr/sbin:/sbin
disk_size=16G  # sparse; the tests write to a copy

exec 9>"$dir/lock"
flock 9

packages=$("$here/../../packaging/install-deps.sh" --list run | paste -sd,)
packages+=,nfs-kernel-server,nfs-common,rpcbind,nftables,iproute2,procps,python3-minimal,libpython3-stdlib
packages+=,libgomp1  # for the runtime of the quickstart
recipe=$({ echo "$packages $disk_size"; cat "$0" "$here/init"; } | sha256sum | cut -c1-16)
if [ "$(cat "$dir/recipe" 2>/dev/null)" = "$recipe" ]; then exit 0; fi
rm -f "$dir/recipe"

new=$(mktemp -d "$dir/new.XXXXXX")
trap 'rm -rf --one-file-system "$new"' EXIT
# The kernel as a package is ten times of what is used of it.
# shellcheck disable=SC2016  # for the shell of mmdebstrap
mmdebstrap --mode=root --variant=apt --aptopt='Acquire::Retries "3"' --include="$packages" \
  --customize-hook='chroot "$1" sh -c "cd /root && apt-get -q download \
    \$(apt-cache depends linux-image-amd64 | sed -n \"s/^ *Depends: //p\" | head -n 1)"' \
  bookworm "$new/root"
kernel=$(echo "$new"/root/root/linux-image-*.deb)
dpkg-deb --fsys-tarfile "$kernel" | tar -x -C "$new/root" --keep-directory-symlink --wildcards './boot/vmlinuz-*' \
  './lib/modules/*/modules.*' './lib/modules/*/kernel/'{arch,crypto,fs,lib,net} \
  './lib/modules/*/kernel/drivers/'{block,char,virtio} \
  './lib/modules/*/kernel/drivers/net/'{virtio_net,net_failover}.ko
rm "$kernel"
version=$(basename "$new"/root/lib/modules/*)
depmod -b "$new/root" "$version"
mv "$new/root/boot/vmlinuz-$version" "$dir/vmlinuz"
mkdir "$new/root/checkout"

ram=$new/ram
mkdir -p "$ram"/{bin,dev,modules,new,proc,sys}
cp "$(command -v busybox)" "$ram/bin/busybox"
cp "$here/init" "$ram/init"
for module in virtio_pci virtio_blk virtio_console crc32c_generic ext4; do
  modprobe -d "$new/root" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$ram/files"
while read -r file; do cp "$file" "$ram/modules/"; done <"$ram/files"
sed -i 's:.*/::' "$ram/files"
(cd "$ram" && find . | cpio -o -H newc --quiet | gzip -1) >"$dir/initrd"

rm -f "$dir/root"
truncate -s "$disk_size" "$dir/root"
mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1 -d "$new/root" "$dir/root"
echo "$recipe" >"$dir/recipe"
