//! The smallest virtual machine: one processor that executes a handful of instructions.
//!
//! Opening `/dev/kvm` proves little, a guest that halts as instructed proves that processors run.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "KVM is spoken to with ioctls and shared memory")
)]

use super::Answer;

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn run() -> Answer {
    Err("not tried on this architecture".into())
}

#[cfg(target_arch = "x86_64")]
pub(super) fn run() -> Answer {
    x86::run().map(|()| "a guest computed and halted".into())
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::{
        ffi::c_ulong,
        fs::OpenOptions,
        io,
        os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        ptr::NonNull,
    };

    use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

    use super::super::Step;

    // Numbers and layouts of linux/kvm.h.
    const GET_API_VERSION: libc::Ioctl = 0xAE00;
    const CREATE_VM: libc::Ioctl = 0xAE01;
    const GET_VCPU_MMAP_SIZE: libc::Ioctl = 0xAE04;
    const CREATE_VCPU: libc::Ioctl = 0xAE41;
    const SET_USER_MEMORY_REGION: libc::Ioctl = 0x4020_AE46;
    const RUN: libc::Ioctl = 0xAE80;
    const SET_REGS: libc::Ioctl = 0x4090_AE82;
    const GET_SREGS: libc::Ioctl = 0x8138_AE83;
    const SET_SREGS: libc::Ioctl = 0x4138_AE84;
    const API_VERSION: i32 = 12;
    const EXIT_HALTED: u32 = 5;
    const PAGE: usize = 4096;
    /// Offset of `exit_reason` in `struct kvm_run`.
    const EXIT_REASON: usize = 8;
    /// `mov ax, 40; add ax, 2; mov [0x100], ax; hlt` in 16-bit code.
    const CODE: [u8; 10] = [0xB8, 40, 0, 0x83, 0xC0, 2, 0xA3, 0x00, 0x01, 0xF4];
    const RESULT: usize = 0x100;
    const START: usize = 0x200;

    #[repr(C)]
    struct MemoryRegion {
        slot: u32,
        flags: u32,
        guest_address: u64,
        size: u64,
        address: u64,
    }

    pub(super) fn run() -> Result<(), String> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .step("open")?;
        let device: OwnedFd = device.into();
        if control(&device, GET_API_VERSION, 0).step("version")? != API_VERSION {
            return Err("an unknown version of KVM".into());
        }
        let machine = create(&device, CREATE_VM).step("make a machine")?;
        let memory = guest_memory(&machine).step("give it memory")?;
        let processor = create(&machine, CREATE_VCPU).step("give it a processor")?;
        let size = control(&device, GET_VCPU_MMAP_SIZE, 0).step("size")?;
        let state = shared_state(&processor, size).step("share the processor's state")?;
        set_registers(&processor).step("set its registers")?;
        control(&processor, RUN, 0).step("run it")?;

        // SAFETY: the mapping is at least a page; the kernel has returned from RUN.
        let reason = unsafe { state.add(EXIT_REASON).cast::<u32>().read_volatile() };
        // SAFETY: RESULT is inside the page, aligned, and the guest is stopped.
        let result = unsafe { memory.add(RESULT).cast::<u16>().read_volatile() };
        match (reason, result) {
            (EXIT_HALTED, 42) => Ok(()),
            (EXIT_HALTED, other) => Err(format!("a guest computed {other} and not 42")),
            (other, _) => Err(format!("a guest stopped for reason {other}")),
        }
    }

    fn create(fd: &OwnedFd, request: libc::Ioctl) -> io::Result<OwnedFd> {
        let raw = control(fd, request, 0)?;
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(raw) })
    }

    /// One page at guest address 0 with the program in it. Lives as long as the process.
    fn guest_memory(machine: &OwnedFd) -> io::Result<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE, access, MapFlags::SHARED)? };
        let page = NonNull::new(page.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: START + CODE fits into the page, which nothing else refers to yet.
        unsafe {
            page.add(START)
                .copy_from_nonoverlapping(NonNull::from(&CODE).cast(), CODE.len());
        };
        let region = MemoryRegion {
            slot: 0,
            flags: 0,
            guest_address: 0,
            size: PAGE as u64,
            address: page.as_ptr().addr() as u64,
        };
        control(
            machine,
            SET_USER_MEMORY_REGION,
            (&raw const region).expose_provenance() as c_ulong,
        )?;
        Ok(page)
    }

    fn shared_state(processor: &OwnedFd, size: i32) -> io::Result<NonNull<u8>> {
        let size = usize::try_from(size).unwrap_or(0).max(PAGE);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let fd = processor.as_raw_fd();
        // SAFETY: the descriptor is open for the whole function.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // SAFETY: a new shared mapping of the processor's state, of the size that KVM reported.
        let state = unsafe { mmap(std::ptr::null_mut(), size, access, MapFlags::SHARED, fd, 0)? };
        NonNull::new(state.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Real mode, code segment at 0, instruction pointer at the program.
    fn set_registers(processor: &OwnedFd) -> io::Result<()> {
        // `struct kvm_sregs`; it begins with the code segment: base, limit, selector, …
        let mut special = [0_u64; 39];
        control(
            processor,
            GET_SREGS,
            (&raw mut special).expose_provenance() as c_ulong,
        )?;
        special[0] = 0;
        special[1] &= !(0xFFFF_u64 << 32);
        control(
            processor,
            SET_SREGS,
            (&raw const special).expose_provenance() as c_ulong,
        )?;
        // `struct kvm_regs`: 16 general registers, then rip and rflags.
        let mut general = [0_u64; 18];
        general[16] = START as u64;
        general[17] = 2; // a bit that is always set
        control(
            processor,
            SET_REGS,
            (&raw const general).expose_provenance() as c_ulong,
        )
        .map(drop)
    }

    fn control(fd: &OwnedFd, request: libc::Ioctl, argument: c_ulong) -> io::Result<i32> {
        // SAFETY: every request above takes either no argument or a pointer to the struct that
        // its number is made of, which the callers keep alive during the call.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(result)
        }
    }
}
