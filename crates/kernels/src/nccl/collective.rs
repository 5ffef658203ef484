//! Operations of [`Collective`] on GPUs. Rows move by NCCL or by copies; NCCL computes reductions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::{CudaEvent, DriverError};
use girih_comm::operands::{check_pieces, check_shape, of_others};
use girih_comm::{Call, Collective, CommError, Parcel, Pending, Traffic, Transport, all_gather, all_to_all, members};
use girih_compute::{Dtype, Shape};

use super::NcclRank;
use super::library::{Calls, Elements};
use crate::CudaMatrix;
use crate::cuda::Cuda;

/// Name of broadcasts in errors.
const BROADCAST: &str = "broadcast";

/// Bytes of some rows for traffic counters, without padding.
fn bytes(matrix: &CudaMatrix, rows: usize) -> u64 {
    (rows * matrix.shape.cols * matrix.dtype.n_bytes()) as u64
}

impl<T: Transport> Collective<Cuda> for NcclRank<T> {
    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn size(&self) -> usize {
        self.transport.size()
    }

    fn broadcast(&self, root: usize, matrix: &mut CudaMatrix) -> Result<(), CommError> {
        let ((rank, size), n_bytes) = (self.rank_and_size(), bytes(matrix, matrix.shape.rows));
        let x = self.rows(matrix, &(0..matrix.shape.rows));
        match &self.one_sided {
            Some(_) => self.spread(root, matrix)?,
            // SAFETY: only this call uses the matrix; enqueued work reads and writes it in the order of its stream.
            None => self.call(BROADCAST, |calls| unsafe { calls.broadcast(root, x, x) })?,
        }
        self.counters.add(Traffic::of_broadcast(n_bytes, size, rank == root));
        Ok(())
    }

    fn all_reduce(&self, matrix: &mut CudaMatrix) -> Result<(), CommError> {
        self.all_reduce_each(&mut [matrix])
    }

    fn all_reduce_each(&self, matrices: &mut [&mut CudaMatrix]) -> Result<(), CommError> {
        let all: Vec<Elements> = matrices.iter().map(|matrix| self.rows(matrix, &(0..matrix.shape.rows))).collect();
        self.call("all-reduce", |calls| {
            // SAFETY: as in `broadcast`.
            all.iter().try_for_each(|x| unsafe { calls.all_reduce(*x) })
        })?;
        let (rank, size) = self.rank_and_size();
        for matrix in matrices {
            self.counters.add(Traffic::of_all_reduce(matrix.shape.len(), matrix.dtype.n_bytes(), rank, size));
        }
        Ok(())
    }

    fn overlaps(&self) -> bool {
        self.comm.is_some()
    }

    fn begin(&self, calls: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Pending, CommError> {
        if self.comm.is_none() {
            calls()?;
            return Ok(Pending::done());
        }
        let failed = |error: DriverError| CommError::Library { operation: "begin", message: error.to_string() };
        self.side.join(&self.stream).map_err(failed)?;
        self.is_beginning.store(true, Ordering::Relaxed);
        let called = calls();
        self.is_beginning.store(false, Ordering::Relaxed);
        called?;
        Ok(Pending::until(self.side.record_event(None).map_err(failed)?))
    }

    fn finish(&self, pending: Pending) -> Result<(), CommError> {
        let failed = |error: DriverError| CommError::Library { operation: "finish", message: error.to_string() };
        pending.mark::<CudaEvent>().map_or(Ok(()), |done| self.stream.wait(&done).map_err(failed))
    }

    fn reduce_scatter(&self, rows: &[usize], input: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), CommError> {
        const NAME: &str = "reduce-scatter";
        let (rank, size) = self.rank_and_size();
        let pieces = check_pieces(NAME, rows, size, input.shape)?;
        check_shape(NAME, out.shape, Shape::new(rows[rank], input.shape.cols))?;
        check_dtypes(NAME, input.dtype, out.dtype)?;
        let sum = self.rows(out, &(0..rows[rank]));
        if self.comm.is_none() {
            return self.copy(NAME, self.rows(input, &pieces[0]), sum);
        }
        self.call(NAME, |calls| {
            let mut some = pieces.iter().enumerate().filter(|(_, piece)| !piece.is_empty());
            // SAFETY: as in `broadcast`; the input is only read.
            some.try_for_each(|(root, piece)| unsafe { calls.reduce(root, self.rows(input, piece), sum) })
        })?;
        let (own, all) = (bytes(input, rows[rank]), bytes(input, input.shape.rows));
        self.counters.add(Traffic::of_reduce_scatter(own, all, size));
        Ok(())
    }

    fn all_gather(&self, rows: &[usize], input: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), CommError> {
        const NAME: &str = "all-gather";
        let (rank, size) = self.rank_and_size();
        let pieces = check_pieces(NAME, rows, size, out.shape)?;
        check_shape(NAME, input.shape, Shape::new(rows[rank], out.shape.cols))?;
        check_dtypes(NAME, input.dtype, out.dtype)?;
        let own = self.rows(input, &(0..rows[rank]));
        if self.comm.is_none() {
            return self.copy(NAME, own, self.rows(out, &pieces[0]));
        }
        self.copy(NAME, own, self.rows(out, &pieces[rank]))?;
        self.share(NAME, rows, (own, &pieces), out)
    }

    fn gather_others(&self, rows: &[usize], input: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), CommError> {
        const NAME: &str = "gather from others";
        let (rank, size) = self.rank_and_size();
        let pieces = check_pieces(NAME, &of_others(rows, rank), size, out.shape)?;
        check_shape(NAME, input.shape, Shape::new(rows[rank], out.shape.cols))?;
        check_dtypes(NAME, input.dtype, out.dtype)?;
        self.share(NAME, rows, (self.rows(input, &(0..rows[rank])), &pieces), out)
    }

    fn all_to_all(
        &self,
        send_rows: &[usize],
        input: &CudaMatrix,
        receive_rows: &[usize],
        out: &mut CudaMatrix,
    ) -> Result<(), CommError> {
        const NAME: &str = "all-to-all";
        let (rank, size) = self.rank_and_size();
        let sent = check_pieces(NAME, send_rows, size, input.shape)?;
        let received = check_pieces(NAME, receive_rows, size, out.shape)?;
        check_shape(NAME, Shape::new(1, input.shape.cols), Shape::new(1, out.shape.cols))?;
        check_shape(NAME, Shape::new(send_rows[rank], 1), Shape::new(receive_rows[rank], 1))?;
        check_dtypes(NAME, input.dtype, out.dtype)?;
        self.copy(NAME, self.rows(input, &sent[rank]), self.rows(out, &received[rank]))?;
        let sent: Vec<Elements> = sent.iter().map(|piece| self.rows(input, piece)).collect();
        let received: Vec<Elements> = received.iter().map(|piece| self.rows(out, piece)).collect();
        self.exchange(NAME, &sent, &received)?;
        let others = |rows: &[usize]| rows.iter().sum::<usize>() - rows[rank];
        self.counters
            .add(Traffic { sent: bytes(input, others(send_rows)), received: bytes(out, others(receive_rows)) });
        Ok(())
    }

    fn all_gather_bytes(&self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let received = all_gather(&*self.transport, "all-gather of messages", message)?;
        Ok(received.iter().map(|parcel| parcel.to_vec()).collect())
    }

    fn all_to_all_bytes(&self, messages: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        all_to_all(&*self.transport, "all-to-all of messages", messages)
    }

    fn split(&self, colour: usize, key: usize) -> Result<Box<dyn Collective<Cuda>>, CommError> {
        const NAME: &str = "split";
        let (rank, size) = self.rank_and_size();
        let members = members(&*self.transport, colour, key)?;
        let place = members.iter().position(|&member| member == rank).expect("a rank is in its group");
        let transport = Arc::new(self.transport.among(&members));
        let is_whole = members.len() == size;
        let comm = match &self.comm {
            // Nobody leaves: all have the same members, and know it.
            Some(comm) if is_whole && members.is_sorted() => Some(Arc::clone(comm)),
            Some(comm) => self.peers.split_off(NAME, comm, ((members.len() > 1).then_some(colour), place))?,
            None => None,
        };
        let one_sided = self.one_sided.as_ref().map(|group| group.among(&members));
        let (stream, side) = (Arc::clone(&self.stream), Arc::clone(&self.side));
        let (is_beginning, peers, counters) =
            (AtomicBool::new(false), Arc::clone(&self.peers), Arc::clone(&self.counters));
        Ok(Box::new(Self { one_sided, transport, comm, stream, side, is_beginning, peers, counters }))
    }

    fn barrier(&self) -> Result<(), CommError> {
        all_gather(&*self.transport, "barrier", &[]).map(drop)
    }

    fn failure(&self) -> Option<CommError> {
        self.transport.failure()
    }

    fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }
}

impl<T: Transport> NcclRank<T> {
    /// Exchanges rows with each other rank. Both lists have an element for each rank; that of this rank is ignored.
    fn exchange(&self, operation: &'static str, sent: &[Elements], received: &[Elements]) -> Result<(), CommError> {
        let (rank, size) = self.rank_and_size();
        let Some(group) = &self.one_sided else {
            return self.call(operation, |calls| {
                let mut others = (0..size).filter(|&other| other != rank);
                others.try_for_each(|other| self.swap(calls, other, sent[other], received[other]))
            });
        };
        let call = Call { operation, detail: [sent[rank].dtype.n_bytes(), 0] };
        let is_begun = self.is_beginning.load(Ordering::Relaxed);
        // SAFETY: as in `Collective::broadcast`; for calls that were begun, `Collective::begin` promises the same.
        let exchanged = unsafe { group.exchange((&*self.transport, call), sent, received, is_begun) };
        exchanged.inspect_err(|_| group.all.note_failure())
    }

    /// All-gather: sends own rows to each other rank, and receives `rows` of each to its range of `out`. All pairs
    /// exchange, so that every link carries rows both ways from the start; broadcasts go along rings, one after the
    /// other.
    fn share(
        &self,
        operation: &'static str,
        rows: &[usize],
        (own, pieces): (Elements, &[std::ops::Range<usize>]),
        out: &mut CudaMatrix,
    ) -> Result<(), CommError> {
        let (rank, size) = self.rank_and_size();
        let received: Vec<Elements> = pieces.iter().map(|piece| self.rows(out, piece)).collect();
        self.exchange(operation, &vec![own; size], &received)?;
        let (own, all) = (bytes(out, rows[rank]), bytes(out, rows.iter().sum()));
        self.counters.add(Traffic::of_all_gather(own, all, size));
        Ok(())
    }

    /// Broadcast by copies. The root's rows are cut into as many slices as there are other ranks. Each copies one
    /// slice from the root, and the others from its peers, so that no link carries more than a few.
    fn spread(&self, root: usize, matrix: &CudaMatrix) -> Result<(), CommError> {
        let (rank, size) = self.rank_and_size();
        let nothing = Elements { len: 0, ..self.rows(matrix, &(0..0)) };
        let slice = |of: usize| match of == root {
            true => nothing,
            false => self.rows(matrix, &slice_of(matrix.shape.rows, (root, size), of)),
        };
        let is_root = rank == root;
        let sent: Vec<Elements> = (0..size).map(|to| if is_root { slice(to) } else { nothing }).collect();
        let received: Vec<Elements> = (0..size).map(|from| if from == root { slice(rank) } else { nothing }).collect();
        self.exchange(BROADCAST, &sent, &received)?;
        if size == 2 {
            return Ok(());
        }
        let sent: Vec<Elements> = (0..size).map(|to| if to == root { nothing } else { slice(rank) }).collect();
        let received: Vec<Elements> = (0..size).map(|from| if is_root { nothing } else { slice(from) }).collect();
        self.exchange(BROADCAST, &sent, &received)
    }

    /// Sends rows to another rank, and receives rows from it.
    fn swap(&self, calls: &Calls, other: usize, sent: Elements, received: Elements) -> Result<(), String> {
        // SAFETY: as in `Collective::broadcast`; the other rank does the same.
        unsafe {
            if sent.len > 0 {
                calls.send(other, sent)?;
            }
            if received.len > 0 {
                calls.receive(other, received)?;
            }
        }
        Ok(())
    }
}

/// Rows of a broadcast that rank `of`, which is not the root, copies from the root: nearly equal slices, by rank.
fn slice_of(n_rows: usize, (root, size): (usize, usize), of: usize) -> std::ops::Range<usize> {
    let (place, n) = (if of > root { of - 1 } else { of }, size - 1);
    n_rows * place / n..n_rows * (place + 1) / n
}

/// Fails if the element types of an operation differ.
fn check_dtypes(operation: &'static str, input: Dtype, out: Dtype) -> Result<(), CommError> {
    if input == out {
        return Ok(());
    }
    Err(CommError::Operand { operation, what: format!("the input is {input:?}, out is {out:?}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_broadcast_make_up_the_rows() {
        for (n_rows, size) in [(10, 4), (1, 4), (0, 3), (7, 2), (33, 5)] {
            for root in 0..size {
                let others = (0..size).filter(|&of| of != root);
                let rows: Vec<usize> = others.flat_map(|of| slice_of(n_rows, (root, size), of)).collect();
                assert_eq!(rows, (0..n_rows).collect::<Vec<_>>(), "{n_rows} rows from {root} to {size}");
            }
        }
    }
}
