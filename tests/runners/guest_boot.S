/* SPDX-License-Identifier: Apache-2.0
 *
 * The boot sector of an emulated machine: reads what lies behind it on the disk to where it belongs in memory and
 * enters a 64-bit Linux kernel. It knows the places of page tables and boot parameters, and of nothing else.
 *
 * At 0x7db0 stand, written by who made the disk: the kernel's entry, then an address and a number of sectors for each
 * part of the disk, in order, and a part of no sectors. */
  .set PAGE_TABLES, 0x10000
  .set BOOT_PARAMETERS, 0x20000
  .set EFER, 0xc0000080
  .set ATA_DATA, 0x1f0
  .set ATA_COUNT, 0x1f2
  .set ATA_COMMAND, 0x1f7

  .code16
  .globl _start
_start:
  cli
  xorw %ax, %ax
  movw %ax, %ds
  inb $0x92, %al /* addresses beyond the first megabyte */
  orb $2, %al
  outb %al, $0x92
  lgdtl gdt_pointer
  movl %cr0, %eax
  orb $1, %al
  movl %eax, %cr0
  ljmpl $0x8, $protected

  .code32
protected:
  movw $0x18, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  movl $0x7c00, %esp
  cld
  movl $parts, %esi
  movl $1, %ebx /* the next sector of the disk */
next_part:
  lodsl
  movl %eax, %edi
  lodsl
  movl %eax, %ebp
  testl %ebp, %ebp
  jz enter
next_sector:
  movw $ATA_COUNT, %dx
  movb $1, %al
  outb %al, %dx
  movl %ebx, %eax
  movl $3, %ecx
next_byte: /* of the sector's number */
  incw %dx
  outb %al, %dx
  shrl $8, %eax
  loop next_byte
  orb $0xe0, %al
  incw %dx
  outb %al, %dx
  movw $ATA_COMMAND, %dx
  movb $0x20, %al
  outb %al, %dx
busy:
  inb %dx, %al
  andb $0x88, %al
  cmpb $8, %al
  jne busy
  movl $256, %ecx
  movw $ATA_DATA, %dx
  rep insw
  incl %ebx
  decl %ebp
  jnz next_sector
  jmp next_part

enter:
  movl %cr4, %eax
  orl $0x20, %eax
  movl %eax, %cr4
  movl $PAGE_TABLES, %eax
  movl %eax, %cr3
  movl $EFER, %ecx
  rdmsr
  orl $0x100, %eax
  wrmsr
  movl %cr0, %eax
  orl $0x80000000, %eax
  movl %eax, %cr0
  ljmpl $0x10, $long_mode

  .code64
long_mode:
  movl $BOOT_PARAMETERS, %esi
  movl entry(%rip), %eax
  jmp *%rax

  .balign 8
gdt: /* nothing, 32-bit code, 64-bit code, data */
  .quad 0, 0x00cf9a000000ffff, 0x00af9a000000ffff, 0x00cf92000000ffff
gdt_pointer:
  .word 31
  .long gdt

  .org 0x1b0
entry:
  .long 0
parts:
  .org 510
  .word 0xaa55
