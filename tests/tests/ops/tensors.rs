//! Tensors: made, viewed, copied and cut up on every device as the host says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_fake_driver::{Act, Rule, Status};
use wakeline_ops::port::{self, Arg, Priority, Promise, Shape};
use wakeline_ops::{DeviceOp, Storage, Submission, device_op};
use wakeline_std::block_on;
use wakeline_tensor::{
    CHUNK_BYTES, COPY_CALLS_MAX, Element, Float, IntoPartition, Lent, Number, Partition, PinnedBuffer, Pools,
    Tensor,
};
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{OpsRig, VendorRig, poll_once, until};
use wakeline_tests::vendor::Vendor;

use crate::ms;

device_tests![
    Everywhere: tensors_of_every_element_are_made_and_come_back,
        random_numbers_are_those_of_the_formula,
        views_of_random_tables_read_copy_and_are_written_as_the_host_says,
        many_numbers_go_both_ways_in_chunks,
        pinned_buffers_go_both_ways_and_views_row_by_row,
        a_borrowed_tensor_is_written_in_place_and_read_behind_that,
        shared_memory_is_not_to_be_written,
        many_small_tensors_come_to_the_host_beside_a_kernel,
        the_pools_are_bounded_and_tell_what_is_in_use;
    EverywhereLeaving: a_borrow_that_is_forgotten_in_flight_is_ordered_and_frees_nothing;
    Fakes: a_copy_that_fails_half_way_is_told_and_what_was_made_is_ordered,
        a_number_of_up_to_four_bytes_is_filled_in_by_one_call,
        a_view_is_copied_in_as_few_calls_as_there_can_be;
];

fn pinned_buffers_go_both_ways_and_views_row_by_row<R: OpsRig>(rig: &R) {
    const ROWS: usize = 300;
    const COLUMNS: usize = 1_001;
    let runtime = rig.runtime();
    let numbers: Vec<u32> =
        (0..u32::try_from(ROWS * COLUMNS).unwrap()).map(|n| n.wrapping_mul(2_654_435_761)).collect();
    let mut buffer = PinnedBuffer::new(runtime.device(), ROWS * COLUMNS).unwrap();
    buffer.write(0, &numbers).unwrap();
    let sent = Tensor::<u32, R::Device>::uninit([ROWS, COLUMNS]).then(|tensor| tensor.overwrite_from(buffer));
    let (tensor, mut buffer) = block_on(sent.on(runtime)).unwrap();
    // The device has its own by now.
    buffer.write(0, &vec![7; ROWS * COLUMNS]).unwrap();
    let buffer = block_on(tensor.fetch_into(buffer).on(runtime)).unwrap();
    assert!(buffer.to_vec().unwrap() == numbers);
    let view = tensor.slice(1, 100..357).unwrap();
    let rows = PinnedBuffer::new(runtime.device(), ROWS * 257).unwrap();
    let rows = block_on(view.fetch_into(rows).on(runtime)).unwrap();
    let wanted: Vec<u32> = numbers.chunks(COLUMNS).flat_map(|row| row[100..357].to_vec()).collect();
    assert!(rows.to_vec().unwrap() == wanted);
    // Dropped in flight, behind work: neither is let go before that.
    let mut flying = rig.occupy(ms(20)).then(move |()| tensor.fetch_into(buffer)).on(runtime);
    assert!(!matches!(poll_once(&mut flying), std::task::Poll::Ready(Err(_))));
    drop((flying, view, rows));
    rig.settle_clean();
}

/// The numbers of what an operation makes.
fn back<T: Element, R: OpsRig>(
    rig: &R,
    op: impl DeviceOp<Device = R::Device, Pending = Tensor<T, R::Device>, Output = Tensor<T, R::Device>>,
) -> Vec<T> {
    block_on(op.then(|tensor| tensor.to_host()).on(rig.runtime())).unwrap()
}

fn numbers<const N: usize>(draws: &mut impl Rng) -> [usize; N] {
    [(); N].map(|()| usize::try_from(draws.next_u32()).unwrap())
}

fn made_of<T: Number + PartialEq + std::fmt::Debug, R: OpsRig>(rig: &R, some: T) {
    assert_eq!(back(rig, Tensor::<T, _>::zeros([3, 5])), [T::ZERO; 15]);
    assert_eq!(back(rig, Tensor::<T, _>::ones(1_001)), [T::ONE; 1_001]);
    assert!(back(rig, Tensor::full(300_001, some)).iter().all(|number| *number == some));
    let steps: Vec<T> = (0..100).map(|index| T::ZERO.nth(T::ONE, index).unwrap()).collect();
    assert_eq!(back(rig, Tensor::arange(T::ZERO, T::ONE, 100)), steps);
    let eye = back(rig, Tensor::<T, _>::eye(70, 65));
    let wanted = |at: usize| if at % 65 == at / 65 { T::ONE } else { T::ZERO };
    assert!(eye.iter().enumerate().all(|(at, number)| *number == wanted(at)));
    // In a part that begins wherever: fills and copies of it are of its own element's alignment.
    let whole = block_on(Tensor::from_host(steps.clone()).on(rig.runtime())).unwrap();
    let part = whole.slice(0, 3..8).unwrap();
    assert_eq!(block_on(part.to_host().on(rig.runtime())).unwrap(), steps[3..8]);
    assert_eq!(back(rig, part.dup()), steps[3..8]);
}

fn tensors_of_every_element_are_made_and_come_back<R: OpsRig>(rig: &R) {
    made_of::<u8, _>(rig, 0x12);
    made_of::<u16, _>(rig, 0x1234);
    made_of::<u32, _>(rig, 0x1234_5678);
    made_of::<u64, _>(rig, 0x1234_5678_9abc_def0);
    made_of::<i8, _>(rig, -3);
    made_of::<i16, _>(rig, -300);
    made_of::<i32, _>(rig, -70_000);
    made_of::<i64, _>(rig, -5_000_000_000);
    made_of::<f32, _>(rig, 1.5e-7);
    made_of::<f64, _>(rig, 1.0 / 3.0);
    made_of::<f16, _>(rig, f16::from_f32(0.1));
    made_of::<bf16, _>(rig, bf16::from_f32(0.1));
    assert_eq!(back(rig, Tensor::from_host(vec![true, false, true])), [true, false, true]);
    let line = back(rig, Tensor::<f64, _>::linspace(0.1, 0.7, 1_001));
    assert_eq!((line[0].to_bits(), line[1_000].to_bits()), (0.1_f64.to_bits(), 0.7_f64.to_bits()));
    rig.settle_clean();
}

fn random_of<T: Float + PartialEq + std::fmt::Debug, R: OpsRig>(rig: &R) {
    let whole = back(rig, Tensor::<T, _>::randn([100, 33], 5));
    assert_eq!(whole[..700], back(rig, Tensor::<T, _>::randn(700, 5)), "by seed and place alone");
    let uniform = back(rig, Tensor::<T, _>::rand(5_000, 9));
    assert!(uniform.iter().all(|n| *n != T::ONE), "below 1");
    assert_ne!(uniform[..100], back(rig, Tensor::<T, _>::rand(100, 10))[..]);
}

/// The values are of another program, by the formula in the documentation.
fn random_numbers_are_those_of_the_formula<R: OpsRig>(rig: &R) {
    let near = |got: Vec<f64>, wanted: [f64; 4], by: f64| {
        assert!(got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < by), "{got:?}");
    };
    let wide = back(rig, Tensor::<f64, _>::randn(4, 42));
    near(
        wide,
        [-0.665_374_867_807_348_6, 1.036_023_808_655_465, -1.433_889_180_653_738_4, 0.423_278_181_244_452_7],
        1e-14,
    );
    let single =
        back(rig, Tensor::<f32, _>::randn([2, 2], 0x1_0000_0007)).into_iter().map(f64::from).collect();
    near(
        single,
        [
            1.419_901_194_855_502_7,
            -0.282_735_539_322_621_74,
            0.257_490_861_573_738_6,
            -1.214_201_853_993_899_2,
        ],
        1e-6,
    );
    let words = [0x6627_e8d5_u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    let uniform = back(rig, Tensor::<f32, _>::rand(4, 0)).into_iter().map(f64::from).collect();
    near(uniform, words.map(|word| f64::from(word >> 8) / f64::from(1 << 24)), 1e-300);
    random_of::<f32, _>(rig);
    random_of::<f64, _>(rig);
    random_of::<f16, _>(rig);
    random_of::<bf16, _>(rig);
    rig.settle_clean();
}

/// A table of three dimensions and a random view of it, each by the number that is there.
fn views_of_random_tables_read_copy_and_are_written_as_the_host_says<R: OpsRig>(rig: &R) {
    let mut draws = Pcg64Mcg::seed_from_u64(17);
    for _ in 0..30 {
        let lens = numbers::<3>(&mut draws).map(|n| n % 40 + 1);
        let host: Vec<u32> = (0..lens.iter().product()).map(|_| draws.next_u32()).collect();
        let whole = block_on(Tensor::from_shaped(lens, host.clone()).on(rig.runtime())).unwrap();
        let starts = numbers::<3>(&mut draws);
        let steps = numbers::<3>(&mut draws).map(|n| n % 3 + 1);
        let orders = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0], [2, 0, 1]];
        let order = orders[numbers::<1>(&mut draws)[0] % 6];
        let mut view = whole.clone();
        let mut kept: Vec<Vec<usize>> = Vec::new();
        for (axis, len) in lens.into_iter().enumerate() {
            let start = starts[axis] % len;
            view = view.stepped(axis, start.., steps[axis]).unwrap();
            kept.push((start..len).step_by(steps[axis]).collect());
        }
        view = view.permute(&order).unwrap();
        let mut wanted = Vec::new();
        for a in &kept[order[0]] {
            for b in &kept[order[1]] {
                for c in &kept[order[2]] {
                    let mut index = [0; 3];
                    for (axis, at) in order.into_iter().zip([a, b, c]) {
                        index[axis] = *at;
                    }
                    wanted.push(host[(index[0] * lens[1] + index[1]) * lens[2] + index[2]]);
                }
            }
        }
        assert_eq!(block_on(view.to_host().on(rig.runtime())).unwrap(), wanted);
        match block_on(view.dup().on(rig.runtime())) {
            Ok(copy) => assert_eq!(block_on(copy.to_host().on(rig.runtime())).unwrap(), wanted),
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::InvalidLimit);
                let mut counts = kept.iter().map(Vec::len).collect::<Vec<_>>();
                counts.sort_unstable();
                assert!(counts[0] * counts[1] > COPY_CALLS_MAX, "{error}: {counts:?}");
                continue;
            }
        }
        drop(whole);
        let other: Vec<u32> = wanted.iter().map(|number| !number).collect();
        let source = Tensor::from_shaped(view.shape(), other.clone()).on(rig.runtime());
        let view = block_on(block_on(source).unwrap().copy_to(view).on(rig.runtime())).unwrap();
        assert_eq!(block_on(view.to_host().on(rig.runtime())).unwrap(), other);
        let view = block_on(view.overwrite(wanted.clone()).on(rig.runtime())).unwrap();
        assert_eq!(block_on(view.to_host().on(rig.runtime())).unwrap(), wanted);
    }
    rig.settle_clean();
}

fn many_numbers_go_both_ways_in_chunks<R: OpsRig>(rig: &R) {
    let len = CHUNK_BYTES / 4 * 4 + 1_237;
    let mut draws = Pcg64Mcg::seed_from_u64(3);
    let sent: Vec<u32> = (0..len).map(|_| draws.next_u32()).collect();
    let back = block_on(async {
        let tensor = Tensor::send_in_chunks(rig.runtime(), len, sent.clone()).await?;
        tensor.slice(0, 1..)?.fetch_in_chunks(rig.runtime()).await
    });
    assert!(back.unwrap() == sent[1..]);
    rig.settle_clean();
}

/// Changes the numbers of memory that is lent, as a launcher of kernels does.
struct Affine<D: port::Launch> {
    storage: Arc<Storage<D>>,
    kernel: D::Kernel,
    words: [u64; 3],
}

impl<D: port::Launch> DeviceOp for Affine<D> {
    type Device = D;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<D>) -> Result<(), Error> {
        let Self { storage, kernel, words: [count, factor, addend] } = self;
        submission.retain(kernel.clone());
        submission.touch(&[storage.write()], |device, stream| {
            let args =
                [Arg::Write(storage.buffer().into()), Arg::Word(count), Arg::Word(factor), Arg::Word(addend)];
            let shape = Shape::new([4, 1, 1], [64, 1, 1]);
            #[expect(unsafe_code, reason = "the port is called as operations do")]
            // SAFETY: the submission keeps storage and kernel, and `touch` orders what else uses it; the kernel writes so many numbers there.
            let promise = unsafe { Promise::new() };
            device.launch(stream, &kernel, shape, &args, promise)
        })
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

device_op!([D] Affine<D> where D: port::Launch);

type Borrowed<'t, D> = Partition<&'t mut Tensor<u32, D>>;

fn affine<'t, R: OpsRig>(
    rig: &R,
    tiles: Borrowed<'t, R::Device>,
    factor: u64,
    addend: u64,
) -> Lent<Affine<R::Device>, Borrowed<'t, R::Device>> {
    let count = tiles.shape().iter().product::<usize>() as u64;
    let storage = Arc::clone(tiles.span().storage);
    Lent::new(Affine { storage, kernel: rig.affines(), words: [count, factor, addend] }, tiles)
}

fn a_borrowed_tensor_is_written_in_place_and_read_behind_that<R: OpsRig>(rig: &R) {
    let mut tensor = block_on(Tensor::full([10, 10], 1_u32).on(rig.runtime())).unwrap();
    for round in 0..20_u32 {
        let tiles = (&mut tensor).partition([4, 4]).unwrap();
        assert_eq!(tiles.grid(), [3, 3].into());
        let ((), tiles) = block_on(affine(rig, tiles, 1, 1).on(rig.runtime())).unwrap();
        let tensor = tiles.unpartition();
        let read = block_on(tensor.to_host().on(rig.runtime())).unwrap();
        assert!(read.iter().all(|number| *number == round + 2), "{round}");
    }
    drop(tensor);
    rig.settle_clean();
}

fn a_borrow_that_is_forgotten_in_flight_is_ordered_and_frees_nothing<R: OpsRig>(rig: &R) {
    let mut tensor = block_on(Tensor::full(1_000, 1_u32).on(rig.runtime())).unwrap();
    // Behind work that takes a while, so that it is in flight.
    let stream = rig.runtime().stream(Priority::Normal).unwrap();
    for forget in [true, false] {
        let length = Nanos::from_millis(20);
        let mut busy = rig.occupy(length).on(rig.runtime());
        let _ = poll_once(&mut busy);
        let mut flying = affine(rig, (&mut tensor).partition(100).unwrap(), 3, 1).on(rig.runtime());
        let _ = poll_once(&mut flying);
        if forget {
            // What it has of the host is lost with it; nothing of the device is.
            std::mem::forget(flying);
        } else {
            drop(flying);
        }
        drop(busy);
    }
    assert_eq!(tensor.to_host().sync_on(&stream).unwrap(), [13; 1_000]);
    drop(tensor);
    rig.settle_clean();
}

fn shared_memory_is_not_to_be_written<R: OpsRig>(rig: &R) {
    let mut tensor = block_on(Tensor::full(8, 1_u32).on(rig.runtime())).unwrap();
    let other = block_on(Tensor::full(8, 2_u32).on(rig.runtime())).unwrap();
    let shared = |error: Error| assert_eq!(error.code(), ErrorCode::TensorShared, "{error}");
    let view = tensor.slice(0, 2..4).unwrap();
    shared((&mut tensor).partition(2).unwrap_err());
    shared(block_on(other.copy_to(tensor.clone()).on(rig.runtime())).unwrap_err());
    drop(view);
    // What is in flight, and what was, does not count.
    let mut reading = tensor.to_host().on(rig.runtime());
    let early = poll_once(&mut reading);
    let tensor = block_on(other.copy_to(tensor).on(rig.runtime())).unwrap();
    let read = match early {
        std::task::Poll::Ready(read) => read,
        std::task::Poll::Pending => block_on(reading),
    };
    assert_eq!(read.unwrap(), [1; 8]);
    assert_eq!(block_on(tensor.to_host().on(rig.runtime())).unwrap(), [2; 8]);
    drop((tensor, other));
    rig.settle_clean();
}

fn the_pools_are_bounded_and_tell_what_is_in_use<R: OpsRig>(rig: &R) {
    let device = rig.runtime().device();
    let tensor = block_on(Tensor::<u8, _>::zeros(1 << 20).on(rig.runtime())).unwrap();
    let usage = device.device_pool().unwrap();
    assert!(usage.in_use_bytes >= 1 << 20 && usage.reserved_bytes >= usage.in_use_bytes, "{usage:?}");
    assert!(usage.high_water_bytes >= usage.in_use_bytes && usage.limit_bytes == u64::MAX, "{usage:?}");
    device.limit_device_pool(usage.in_use_bytes + 1_000);
    let error = block_on(Tensor::<u8, _>::zeros(1_001).on(rig.runtime())).unwrap_err();
    assert_eq!((error.code(), error.args()[2].as_str()), (ErrorCode::OutOfMemory, "1001"), "{error}");
    assert!(
        error.to_string().contains(&format!("{} bytes, of which", usage.in_use_bytes + 1_000)),
        "{error}"
    );
    drop(block_on(Tensor::<u8, _>::zeros(1_000).on(rig.runtime())).unwrap());
    device.limit_device_pool(u64::MAX);
    assert_eq!(block_on(tensor.to_host().on(rig.runtime())).unwrap().len(), 1 << 20);
    let pinned = device.pinned_pool();
    assert!(pinned.high_water_bytes >= 1 << 20 && pinned.limit_bytes > 0, "{pinned:?}");
    drop(tensor);
    rig.settle_clean();
    let in_use = || (device.device_pool().unwrap().in_use_bytes, device.pinned_pool().in_use_bytes);
    until("nothing is in use", || in_use() == (0, 0));
    device.trim_pinned_pool(0).unwrap();
    assert_eq!(device.pinned_pool().reserved_bytes, 0);
    device.trim_device_pool(0).unwrap();
    // And goes on.
    assert_eq!(back(rig, Tensor::from_host(vec![1_u8, 2])), [1, 2]);
    rig.settle_clean();
}

/// How often each of these calls was made since the log was cleared.
fn calls<D: Vendor, const N: usize>(rig: &VendorRig<D>, names: [&str; N]) -> [usize; N] {
    names.map(|name| usize::try_from(rig.fake().calls(name)).unwrap())
}

fn a_copy_that_fails_half_way_is_told_and_what_was_made_is_ordered<D: Vendor>(rig: &VendorRig<D>) {
    let table = block_on(Tensor::arange(0_u32, 1, 600).on(rig.runtime())).unwrap().reshape([20, 30]).unwrap();
    let turned = table.transpose().unwrap();
    let refused = || Rule::new("cuMemcpy2DAsync", Act::Fail(Status(1)));
    // The first of its calls, one in the middle, the last; each in another stream than what comes next.
    for skipped in [0, 7, 19] {
        let mut lent = block_on(Tensor::full([30, 20], 9_u32).on(rig.runtime())).unwrap();
        rig.fake().rule(refused().skip(skipped).times(1));
        let mut held = rig.occupy(Nanos::from_millis(2)).on(rig.runtime());
        let _ = poll_once(&mut held);
        let error =
            block_on(async { turned.copy_into(&mut lent).on(rig.runtime()).await.map(drop) }).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend, "{error}");
        rig.fake().clear_rules();
        let other = block_on(Tensor::full([30, 20], 5_u32).on(rig.runtime())).unwrap();
        let target = block_on(other.copy_to(lent).on(rig.runtime())).unwrap();
        assert_eq!(block_on(target.to_host().on(rig.runtime())).unwrap(), [5; 600], "{skipped}");
        drop(held);
        // Nor does one fetch that fails leave anything behind.
        rig.fake().rule(refused().skip(skipped).times(1));
        assert_eq!(block_on(turned.to_host().on(rig.runtime())).unwrap_err().code(), ErrorCode::Backend);
        rig.fake().clear_rules();
        assert_eq!(block_on(turned.to_host().on(rig.runtime())).unwrap()[..3], [0, 30, 60]);
    }
    drop((table, turned));
    rig.settle_clean();
}

const FILLS: [&str; 4] = ["cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cuMemcpyHtoDAsync"];

fn a_number_of_up_to_four_bytes_is_filled_in_by_one_call<D: Vendor>(rig: &VendorRig<D>) {
    fn made<D: Vendor, T: Element>(rig: &VendorRig<D>, number: T) -> [usize; 4] {
        rig.fake().clear_log();
        drop(block_on(Tensor::full([1_000, 1_000], number).on(rig.runtime())).unwrap());
        calls(rig, FILLS)
    }
    assert_eq!(made(rig, 7_u8), [1, 0, 0, 0]);
    assert_eq!(made(rig, f16::ONE), [0, 1, 0, 0]);
    assert_eq!(made(rig, 1_f32), [0, 0, 1, 0]);
    assert_eq!(made(rig, 0_f64), [1, 0, 0, 0], "of one byte again and again");
    assert_eq!(made(rig, 0x1234_5678_1234_5678_u64), [0, 0, 1, 0]);
    // Sent once, and copied on by the device.
    assert_eq!(made(rig, 1_f64), [0, 0, 0, 1]);
    assert_eq!(calls(rig, ["cuMemcpyDtoDAsync"]), [7], "from 64 KiB to 8 MB, doubling");
    rig.settle_clean();
}

fn a_view_is_copied_in_as_few_calls_as_there_can_be<D: Vendor>(rig: &VendorRig<D>) {
    let table =
        block_on(Tensor::arange(0_u32, 1, 6_000).on(rig.runtime())).unwrap().reshape([10, 20, 30]).unwrap();
    let names = ["cuMemcpyDtoDAsync", "cuMemcpy2DAsync"];
    let copied = |view: Tensor<u32, _>| {
        rig.fake().clear_log();
        drop(block_on(view.dup().on(rig.runtime())).unwrap());
        calls(rig, names)
    };
    assert_eq!(copied(table.clone()), [1, 0]);
    assert_eq!(copied(table.slice(0, 3..7).unwrap()), [1, 0], "whole rows");
    assert_eq!(copied(table.slice(2, 5..6).unwrap()), [0, 1], "a column: two dimensions are one");
    assert_eq!(copied(table.slice(1, 2..9).unwrap()), [0, 1]);
    assert_eq!(copied(table.slice(1, 2..9).unwrap().slice(2, ..9).unwrap()), [0, 7], "the shorter of two");
    assert_eq!(copied(table.select(0, 4).unwrap().transpose().unwrap()), [0, 20]);
    drop(table);
    rig.settle_clean();
}

/// Copies of many small tensors go on while a kernel runs: drawn as a timeline.
fn many_small_tensors_come_to_the_host_beside_a_kernel<R: OpsRig>(rig: &R) {
    // On a machine that others load copies take longer: then beside a longer kernel.
    let beside_one_of = [60, 240, 960].into_iter().any(|length| many_come_beside(rig, ms(length)));
    assert!(beside_one_of, "no kernel was longer than the copies beside it");
}

/// Whether all came while a kernel of that length ran.
fn many_come_beside<R: OpsRig>(rig: &R, length: Nanos) -> bool {
    const TENSORS: u32 = 48;
    let runtime = rig.runtime();
    let stream = runtime.stream(Priority::Normal).unwrap();
    let tensors: Vec<_> = (0..TENSORS).map(|n| block_on(Tensor::full(256, n).on(runtime)).unwrap()).collect();
    // What is slow the first time.
    block_on(tensors[0].to_host().on(runtime)).unwrap();
    let start = Instant::now();
    let (busy, copies) = std::thread::scope(|scope| {
        let op = rig.occupy(length);
        let busy = scope.spawn(move || {
            op.sync_on(&stream).unwrap();
            start.elapsed()
        });
        std::thread::sleep(Duration::from_millis(2));
        let copies: Vec<_> = (0..)
            .zip(&tensors)
            .map(|(n, tensor)| {
                let begun = start.elapsed();
                assert_eq!(block_on(tensor.to_host().on(runtime)).unwrap(), vec![n; 256]);
                (begun, start.elapsed())
            })
            .collect();
        (busy.join().unwrap(), copies)
    });
    let at = |time: Duration| usize::try_from(time.as_millis()).unwrap().min(120);
    println!("kernel {}", "#".repeat(at(busy)));
    let row = |(begun, ended): (Duration, Duration)| {
        format!("copies {}{}", " ".repeat(at(begun)), "=".repeat(at(ended).saturating_sub(at(begun)).max(1)))
    };
    println!("{}", row((copies[0].0, copies[copies.len() - 1].1)));
    let beside = copies.iter().filter(|(_, ended)| *ended < busy).count();
    assert!(busy.as_nanos() >= length.as_nanos().into(), "{busy:?}");
    if beside < copies.len() {
        println!("{beside} of {TENSORS} came while it ran");
    }
    beside == copies.len()
}
