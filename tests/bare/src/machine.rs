//! What the program needs of its machine: a serial line, the counter, a second processor, an end.
#![allow(unsafe_code, reason = "ports, registers and addresses of a bare machine")]

use core::arch::asm;
use core::arch::x86_64::_rdtsc;
use core::fmt::{self, Write};
use core::hint::spin_loop;
use core::panic::PanicInfo;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use wakeline_core::{Clock, HostLine, Instant, Seq, Slot};

/// The registers of the first serial line.
const SERIAL: u16 = 0x3F8;

/// Where the local interrupt controller is.
const APIC: usize = 0xFEE0_0000;

/// Where the second processor begins: page 8.
const SECOND: usize = 0x8000;

/// How often the second processor is given time to come up.
const TRIES_MAX: u32 = 200;

/// The line that is watched.
pub(crate) static LINE: HostLine = HostLine::new();

/// What the second processor is to do: store this number, 0 for nothing.
static STORE: AtomicU64 = AtomicU64::new(0);
/// Where.
static SLOT: AtomicU32 = AtomicU32::new(0);
/// After how many ticks.
static AFTER: AtomicU64 = AtomicU64::new(0);
static UP: AtomicU32 = AtomicU32::new(0);

/// The counter as a clock: a tick is a nanosecond.
#[derive(Clone, Copy)]
pub(crate) struct Ticks;

impl Clock for Ticks {
    fn now(&self) -> Instant {
        Instant::from_nanos(ticks())
    }
}

pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { _rdtsc() }
}

fn out(port: u16, value: u8) {
    // SAFETY: the ports are those of a serial line, of the interrupt controllers and of the emulator: none changes memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

fn inp(port: u16) -> u8 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

/// The serial line.
pub(crate) struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while inp(SERIAL + 5) & 0x20 == 0 {}
            out(SERIAL, byte);
        }
        Ok(())
    }
}

pub(crate) fn wait(length: u64) {
    let end = ticks() + length;
    while ticks() < end {
        spin_loop();
    }
}

fn apic(register: usize, value: u32) {
    // SAFETY: the controller's registers are mapped there, and nothing else is.
    unsafe { ptr::with_exposed_provenance_mut::<u32>(APIC + register).write_volatile(value) };
}

/// No interrupt but the processors' own: one would end a wait.
pub(crate) fn quiet() {
    out(SERIAL + 3, 3);
    out(0x21, 0xFF);
    out(0xA1, 0xFF);
}

// SAFETY: `boot.rs` has both names, of one piece of code that is only copied.
unsafe extern "C" {
    static bare_second: u8;
    static bare_second_end: u8;
}

/// Wakes the second processor; whether it came.
pub(crate) fn start_second() -> bool {
    let (begin, end) = (&raw const bare_second, &raw const bare_second_end);
    let length = end.addr() - begin.addr();
    // SAFETY: both names are of one piece of code, and nothing else is at that page.
    unsafe { ptr::copy_nonoverlapping(begin, ptr::with_exposed_provenance_mut(SECOND), length) };
    apic(0xF0, 0x1FF);
    // Reset, then begin at the page; once more where it did not hear.
    apic(0x300, 0xC_4500);
    wait(2_000_000);
    for _ in 0..2 {
        apic(0x300, 0xC_4608);
        wait(400_000);
        if UP.load(Ordering::Acquire) != 0 {
            return true;
        }
    }
    (0..TRIES_MAX).any(|_| {
        wait(100_000);
        UP.load(Ordering::Acquire) != 0
    })
}

/// Has the second processor store `seq` into a word of the line after so many ticks.
pub(crate) fn store_after(slot: Slot, seq: u64, after: u64) {
    SLOT.store(slot.index() as u32, Ordering::Relaxed);
    AFTER.store(after, Ordering::Relaxed);
    STORE.store(seq, Ordering::Release);
}

/// Waits until it has.
pub(crate) fn stored() {
    while STORE.load(Ordering::Acquire) != 0 {
        spin_loop();
    }
}

// SAFETY: no other function has the name.
#[unsafe(no_mangle)]
extern "C" fn bare_second_main() -> ! {
    UP.store(1, Ordering::Release);
    loop {
        let seq = STORE.load(Ordering::Acquire);
        if seq == 0 {
            spin_loop();
            continue;
        }
        wait(AFTER.load(Ordering::Relaxed));
        let slot = Slot::ALL[SLOT.load(Ordering::Relaxed) as usize % Slot::ALL.len()];
        LINE.store(slot, Seq::new(seq));
        STORE.store(0, Ordering::Release);
    }
}

/// Ends the emulator, once the serial line is empty.
pub(crate) fn end() -> ! {
    while inp(SERIAL + 5) & 0x40 == 0 {}
    wait(100_000);
    "Shutdown".bytes().for_each(|byte| out(0x8900, byte));
    loop {
        // SAFETY: it waits, for good.
        unsafe { asm!("cli", "hlt", options(nostack)) };
    }
}

#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    // Who reads it finds a line that is no JSON, and no end.
    let _ = writeln!(Serial, "panicked: {info}");
    end()
}
