//! [`Communicator`]: collective operations composed of exchanges of parcels.

use std::ops::Range;
use std::sync::Arc;

use girih_compute::{Backend, Dtype, HostMatrix, Shape};
use half::bf16;

use crate::collective::Counters;
use crate::operands::{check_pieces, check_shape, of_others};
use crate::transport::{Call, Parcel, Transport, all_gather, all_to_all, members, nothing};
use crate::{Collective, CommError, Payload, Traffic};

/// Communicator over a transport of bytes, for backends with matrices in host memory.
pub struct Communicator<T> {
    transport: T,
    counters: Arc<Counters>,
}

impl<T: Transport> Communicator<T> {
    /// Communicator that sends its bytes over `transport`.
    #[must_use]
    pub fn new(transport: T) -> Self {
        Self { transport, counters: Arc::default() }
    }

    /// Transport of the communicator.
    #[must_use]
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Transport of the communicator, for code that moves matrices in another way.
    #[must_use]
    pub fn into_transport(self) -> T {
        self.transport
    }

    /// Exchanges parcels of matrices, and counts the bytes to and from other ranks.
    fn exchange(&self, call: Call, parcels: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        let of_others = |parcels: &[Parcel]| -> u64 {
            let others = parcels.iter().enumerate().filter(|(rank, _)| *rank != self.transport.rank());
            others.map(|(_, parcel)| parcel.len() as u64).sum()
        };
        self.counters.add(Traffic { sent: of_others(&parcels), received: 0 });
        let received = self.transport.exchange(call, parcels)?;
        self.counters.add(Traffic { sent: 0, received: of_others(&received) });
        Ok(received)
    }

    /// Sends this rank's bytes to every rank, and returns those of all ranks.
    fn share(&self, call: Call, mine: &[u8]) -> Result<Vec<Parcel>, CommError> {
        let parcel: Parcel = mine.into();
        self.exchange(call, vec![parcel; self.transport.size()])
    }

    /// Stacks row blocks of `rows[i]` rows from rank `i`. `kept[i]` is `rows[i]` or 0, which leaves out the block.
    fn gather<M: HostMatrix>(
        &self,
        operation: &'static str,
        (rows, kept): (&[usize], &[usize]),
        input: &M,
        out: &mut M,
    ) -> Result<(), CommError> {
        let (whole, rank) = (Whole::of(out), self.transport.rank());
        let pieces = pieces(operation, kept, self.transport.size(), whole)?;
        check_shape(operation, Whole::of(input).shape, Shape::new(rows[rank], whole.shape.cols))?;
        let call = whole.call(operation, rows.iter().sum());
        let mut received = self.share(call, input.bytes())?;
        if kept[rank] == 0 {
            received[rank] = nothing();
        }
        self.check_lengths(call, &received, |rank| pieces[rank].len())?;
        stack(&received, out.bytes_mut());
        Ok(())
    }

    /// Refuses parcels of unexpected lengths: the ranks disagree about sizes.
    fn check_lengths(
        &self,
        call: Call,
        parcels: &[Parcel],
        expected: impl Fn(usize) -> usize,
    ) -> Result<(), CommError> {
        for (place, parcel) in parcels.iter().enumerate() {
            Payload::new(parcel, self.transport.member(place), call.operation).exactly_bytes(expected(place))?;
        }
        Ok(())
    }

    /// Sends the range of each rank to that rank, and writes the sum of the received ranges to `out`.
    fn sum_pieces(
        &self,
        call: Call,
        (bytes, dtype): (&[u8], Dtype),
        pieces: &[Range<usize>],
        out: &mut [u8],
    ) -> Result<(), CommError> {
        let parcels = pieces.iter().map(|piece| Parcel::from(&bytes[piece.clone()])).collect();
        let received = self.exchange(call, parcels)?;
        self.check_lengths(call, &received, |_| out.len())?;
        match dtype {
            Dtype::F32 => add_up::<4>(&received, out, f32::from_le_bytes, f32::to_le_bytes),
            Dtype::Bf16 => {
                let read = |bytes| bf16::from_le_bytes(bytes).to_f32();
                add_up::<2>(&received, out, read, |sum| bf16::from_f32(sum).to_le_bytes());
            }
        }
        Ok(())
    }
}

/// `out[i] = Σ parcel[i]` in `f32`, in the order of parcels, rounded once.
fn add_up<const N: usize>(
    parcels: &[Parcel],
    out: &mut [u8],
    read: impl Fn([u8; N]) -> f32,
    write: impl Fn(f32) -> [u8; N],
) {
    let mut sums = vec![0.0; out.len() / N];
    for parcel in parcels {
        sums.iter_mut().zip(parcel.as_chunks::<N>().0).for_each(|(sum, bytes)| *sum += read(*bytes));
    }
    out.as_chunks_mut::<N>().0.iter_mut().zip(sums).for_each(|(out, sum)| *out = write(sum));
}

/// Concatenates parcels.
fn stack(parcels: &[Parcel], mut out: &mut [u8]) {
    for parcel in parcels {
        let (head, tail) = out.split_at_mut(parcel.len());
        head.copy_from_slice(parcel);
        out = tail;
    }
}

/// Byte ranges of consecutive row blocks.
fn pieces(
    operation: &'static str,
    rows: &[usize],
    n_ranks: usize,
    whole: Whole,
) -> Result<Vec<Range<usize>>, CommError> {
    let row = whole.shape.cols * whole.dtype.n_bytes();
    Ok(check_pieces(operation, rows, n_ranks, whole.shape)?.into_iter().map(|r| r.start * row..r.end * row).collect())
}

/// Shape and element type of a matrix.
#[derive(Clone, Copy)]
struct Whole {
    shape: Shape,
    dtype: Dtype,
}

impl Whole {
    fn of(matrix: &impl HostMatrix) -> Self {
        Self { shape: matrix.shape(), dtype: matrix.dtype() }
    }

    fn call(self, operation: &'static str, detail: usize) -> Call {
        Call { operation, detail: [detail, self.shape.cols] }
    }
}

impl<B: Backend, T: Transport> Collective<B> for Communicator<T>
where
    B::Matrix: HostMatrix,
{
    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn size(&self) -> usize {
        self.transport.size()
    }

    fn broadcast(&self, root: usize, matrix: &mut B::Matrix) -> Result<(), CommError> {
        let (whole, rank, size) = (Whole::of(matrix), self.transport.rank(), self.transport.size());
        let call = whole.call("broadcast", root);
        let parcels = match rank == root {
            true => vec![Parcel::from(matrix.bytes()); size],
            false => vec![nothing(); size],
        };
        let received = self.exchange(call, parcels)?;
        if rank != root {
            let len = matrix.bytes().len();
            self.check_lengths(call, &received, |from| if from == root { len } else { 0 })?;
            matrix.bytes_mut().copy_from_slice(&received[root]);
        }
        Ok(())
    }

    fn all_reduce(&self, matrix: &mut B::Matrix) -> Result<(), CommError> {
        let (whole, size) = (Whole::of(matrix), self.transport.size());
        let (n, width) = (whole.shape.len(), whole.dtype.n_bytes());
        let slices: Vec<_> = (0..size).map(|i| width * (n * i / size)..width * (n * (i + 1) / size)).collect();
        let mut mine = vec![0; slices[self.transport.rank()].len()];
        let call = whole.call("all-reduce", n);
        self.sum_pieces(call, (matrix.bytes(), whole.dtype), &slices, &mut mine)?;
        let received = self.share(call, &mine)?;
        self.check_lengths(call, &received, |rank| slices[rank].len())?;
        stack(&received, matrix.bytes_mut());
        Ok(())
    }

    fn reduce_scatter(&self, rows: &[usize], input: &B::Matrix, out: &mut B::Matrix) -> Result<(), CommError> {
        const NAME: &str = "reduce-scatter";
        let whole = Whole::of(input);
        let pieces = pieces(NAME, rows, self.transport.size(), whole)?;
        check_shape(NAME, Whole::of(out).shape, Shape::new(rows[self.transport.rank()], whole.shape.cols))?;
        self.sum_pieces(whole.call(NAME, whole.shape.rows), (input.bytes(), whole.dtype), &pieces, out.bytes_mut())
    }

    fn all_gather(&self, rows: &[usize], input: &B::Matrix, out: &mut B::Matrix) -> Result<(), CommError> {
        self.gather("all-gather", (rows, rows), input, out)
    }

    fn gather_others(&self, rows: &[usize], input: &B::Matrix, out: &mut B::Matrix) -> Result<(), CommError> {
        self.gather("gather from others", (rows, &of_others(rows, self.transport.rank())), input, out)
    }

    fn all_to_all(
        &self,
        send_rows: &[usize],
        input: &B::Matrix,
        receive_rows: &[usize],
        out: &mut B::Matrix,
    ) -> Result<(), CommError> {
        const NAME: &str = "all-to-all";
        let (whole, size) = (Whole::of(input), self.transport.size());
        let (sent, received) =
            (pieces(NAME, send_rows, size, whole)?, pieces(NAME, receive_rows, size, Whole::of(out))?);
        let call = whole.call(NAME, 0);
        let parcels = sent.into_iter().map(|piece| Parcel::from(&input.bytes()[piece])).collect();
        let parcels = self.exchange(call, parcels)?;
        self.check_lengths(call, &parcels, |rank| received[rank].len())?;
        stack(&parcels, out.bytes_mut());
        Ok(())
    }

    fn all_gather_bytes(&self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let received = all_gather(&self.transport, "all-gather of messages", message)?;
        Ok(received.iter().map(|parcel| parcel.to_vec()).collect())
    }

    fn all_to_all_bytes(&self, messages: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        all_to_all(&self.transport, "all-to-all of messages", messages)
    }

    fn split(&self, colour: usize, key: usize) -> Result<Box<dyn Collective<B>>, CommError> {
        let members = members(&self.transport, colour, key)?;
        let transport = self.transport.among(&members);
        Ok(Box::new(Self { transport, counters: Arc::clone(&self.counters) }))
    }

    fn barrier(&self) -> Result<(), CommError> {
        let call = Call { operation: "barrier", detail: [0, 0] };
        self.transport.exchange(call, vec![nothing(); self.transport.size()]).map(drop)
    }

    fn failure(&self) -> Option<CommError> {
        self.transport.failure()
    }

    fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }
}
