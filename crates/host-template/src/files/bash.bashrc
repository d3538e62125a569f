# /etc/bash.bashrc: for interactive shells.
[ -z "${PS1-}" ] && return
shopt -s checkwinsize
PS1='\u@\h:\w\$ '
