//! Properties of the launch order on plain data: ranks, messages and a GPU, in randomly generated schedules.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use crate::diagnosis::Diagnosis;
use crate::message::{Content, Progress, Status};
use crate::schedule::LaunchSchedule;
use crate::{Entry, Launch, Message, Order, OrderError, OrderLog, Rules};

/// GPU that starts collectives in the order of their launches. A collective holds all slots of the GPU until it has
/// started on every rank.
#[derive(Default)]
struct Gpu {
    /// Launches that have not started on every rank, oldest first. The first one has started here.
    launched: VecDeque<Launch>,
}

/// Ranks as plain data, driven one step at a time.
struct World {
    schedules: Vec<LaunchSchedule>,
    n_workers: usize,
    /// Number of launches that each worker of each rank makes.
    wanted: Vec<Vec<u64>>,
    /// Messages in transit, by (sender, worker, receiver). Messages of one worker stay in order.
    mail: BTreeMap<(usize, usize, usize), VecDeque<Content>>,
    launching: Vec<Option<usize>>,
    orders: Vec<Vec<Launch>>,
    gpus: Option<Vec<Gpu>>,
    /// Per rank: each registered worker, with the number of launches of every worker since then.
    waiting: Vec<BTreeMap<usize, Vec<usize>>>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Register(usize, usize),
    SignOff(usize, usize),
    Deliver(usize, usize, usize),
    Begin(usize, usize),
    End(usize, usize),
}

impl World {
    fn new(rules: &Rules, wanted: Vec<Vec<u64>>, has_gpus: bool) -> Self {
        let (n_ranks, n_workers) = (wanted.len(), rules.workers.len());
        Self {
            schedules: (0..n_ranks).map(|rank| LaunchSchedule::new(rank, n_ranks, rules)).collect(),
            n_workers,
            wanted,
            mail: BTreeMap::new(),
            launching: vec![None; n_ranks],
            orders: vec![Vec::new(); n_ranks],
            gpus: has_gpus.then(|| (0..n_ranks).map(|_| Gpu::default()).collect()),
            waiting: vec![BTreeMap::new(); n_ranks],
        }
    }

    /// Whether a worker still waits for the result of its last launch.
    fn is_on_gpu(&self, rank: usize, worker: usize) -> bool {
        let is_its = |launch: &Launch| launch.worker == worker;
        self.gpus.as_ref().is_some_and(|gpus| gpus[rank].launched.iter().any(is_its))
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (rank, schedule) in self.schedules.iter().enumerate() {
            for (worker, progress) in schedule.workers().iter().enumerate() {
                let is_idle = progress.pending.is_none() && !progress.has_signed_off && !self.is_on_gpu(rank, worker);
                let is_launching = self.launching[rank] == Some(worker);
                match progress.pending {
                    None if is_idle && progress.n_launched < self.wanted[rank][worker] => {
                        steps.push(Step::Register(rank, worker));
                    }
                    None if is_idle => steps.push(Step::SignOff(rank, worker)),
                    Some(_) if is_launching => steps.push(Step::End(rank, worker)),
                    Some(_) if self.launching[rank].is_none() && schedule.is_turn(worker) => {
                        steps.push(Step::Begin(rank, worker));
                    }
                    _ => {}
                }
            }
        }
        let full = self.mail.iter().filter(|(_, messages)| !messages.is_empty());
        steps.extend(full.map(|(&(from, worker, to), _)| Step::Deliver(from, worker, to)));
        steps
    }

    fn send(&mut self, from: usize, worker: usize, content: &Content) {
        for to in (0..self.schedules.len()).filter(|to| *to != from) {
            self.mail.entry((from, worker, to)).or_default().push_back(content.clone());
        }
    }

    fn carry_out(&mut self, step: Step) -> Result<(), OrderError> {
        match step {
            Step::Register(rank, worker) => {
                let batch = self.schedules[rank].workers()[worker].n_launched;
                self.waiting[rank].insert(worker, vec![0; self.n_workers]);
                if let Some(content) = self.schedules[rank].register(worker, batch)? {
                    self.send(rank, worker, &content);
                }
            }
            Step::SignOff(rank, worker) => {
                let content = self.schedules[rank].close(worker)?;
                self.send(rank, worker, &content);
            }
            Step::Deliver(from, worker, to) => {
                let content = self.mail.get_mut(&(from, worker, to)).and_then(VecDeque::pop_front).unwrap();
                self.schedules[to].hear(from, &content)?;
            }
            Step::Begin(rank, worker) => {
                self.schedules[rank].begin(worker);
                self.launching[rank] = Some(worker);
            }
            Step::End(rank, worker) => self.end(rank, worker),
        }
        Ok(())
    }

    fn end(&mut self, rank: usize, worker: usize) {
        let launch = self.schedules[rank].end(worker);
        self.launching[rank] = None;
        self.orders[rank].push(launch);
        self.waiting[rank].remove(&worker);
        self.waiting[rank].values_mut().for_each(|others| others[worker] += 1);
        if let Some(gpus) = &mut self.gpus {
            gpus[rank].launched.push_back(launch);
            start(gpus);
        }
    }

    /// Takes the steps that `choices` select, until none is left.
    fn run(&mut self, choices: &[u16], mut after: impl FnMut(&Self)) -> Result<(), OrderError> {
        let mut choices = choices.iter().cycle();
        loop {
            let steps = self.steps();
            if steps.is_empty() {
                return Ok(());
            }
            let choice = *choices.next().unwrap() as usize;
            self.carry_out(steps[choice % steps.len()])?;
            after(self);
        }
    }

    fn has_ended(&self) -> bool {
        self.schedules.iter().all(|schedule| schedule.missing_sign_off().is_none())
    }
}

/// Completes the collectives that are first on every GPU.
fn start(gpus: &mut [Gpu]) {
    while let Some(&first) = gpus[0].launched.front()
        && gpus.iter().all(|gpu| gpu.launched.front() == Some(&first))
    {
        gpus.iter_mut().for_each(|gpu| {
            gpu.launched.pop_front();
        });
    }
}

fn rules(n_workers: usize, order: Order) -> Rules {
    Rules::new((0..n_workers).map(|worker| format!("worker {worker}"))).order(order)
}

/// Launch orders that must not deadlock. The log of the replay comes from a run with a leader.
fn orders(n_ranks: usize, n_workers: usize, n: u64) -> Vec<Order> {
    let mut world = World::new(&rules(n_workers, Order::Led { leader: 0 }), vec![vec![n; n_workers]], false);
    world.run(&[7, 3, 1, 4], |_| {}).unwrap();
    let entry = |launch: &Launch| Entry { launch: *launch, registered_s: 0.0, turn_s: 0.0, launched_s: 0.0 };
    let workers = (0..n_workers).map(|worker| format!("worker {worker}")).collect();
    let log = OrderLog { rank: 0, workers, entries: world.orders[0].iter().map(entry).collect() };
    vec![
        Order::Led { leader: 0 },
        Order::Led { leader: n_ranks - 1 },
        Order::Fixed { lag: 0 },
        Order::Fixed { lag: 1 },
        Order::Fixed { lag: 3 },
        Order::Replay(log),
    ]
}

fn choices() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 50..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Runs on GPUs that each hold one collective at a time.
    #[test]
    fn all_ranks_launch_everything_in_one_order(
        n_ranks in 1..5usize, n_workers in 1..5usize, n in 0..12u64, which in 0..6usize, choices in choices(),
    ) {
        let order = orders(n_ranks, n_workers, n).swap_remove(which);
        let mut world = World::new(&rules(n_workers, order), vec![vec![n; n_workers]; n_ranks], true);
        world.run(&choices, |_| {}).unwrap();
        prop_assert!(world.has_ended(), "{:?}", world.orders);
        for order in &world.orders {
            prop_assert_eq!(order, &world.orders[0]);
        }
        for worker in 0..n_workers {
            let batches = world.orders[0].iter().filter(|launch| launch.worker == worker).map(|launch| launch.batch);
            prop_assert!(batches.eq(0..n));
        }
    }

    /// No worker of the leader waits for two launches of another worker.
    #[test]
    fn nobody_starves(n_ranks in 1..4usize, n_workers in 1..5usize, n in 1..12u64, choices in choices()) {
        let rules = rules(n_workers, Order::Led { leader: 0 });
        let mut world = World::new(&rules, vec![vec![n; n_workers]; n_ranks], false);
        world.run(&choices, |world| {
            assert!(world.waiting[0].values().flatten().all(|n_launched| *n_launched <= 1));
        }).unwrap();
        prop_assert!(world.has_ended());
    }

    /// In any order, and on any rank: a missing launch is an error.
    #[test]
    fn another_number_of_launches_never_ends_well(
        n_ranks in 2..4usize, n_workers in 1..4usize, n in 1..8u64, which in 0..7usize, at in any::<u16>(), choices in choices(),
    ) {
        let mut all = orders(n_ranks, n_workers, n);
        all.push(Order::Free);
        let mut wanted = vec![vec![n; n_workers]; n_ranks];
        let (rank, worker) = (at as usize % n_ranks, (at >> 8) as usize % n_workers);
        wanted[rank][worker] -= 1;
        let mut world = World::new(&rules(n_workers, all.swap_remove(which)), wanted, false);
        let outcome = world.run(&choices, |_| {});
        prop_assert!(outcome.is_err(), "{:?}", world.orders);
        let named = format!("worker {worker}");
        prop_assert!(outcome.unwrap_err().to_string().contains(&named));
    }

    /// Without a launch order, two ranks deadlock exactly when they launch in different orders.
    #[test]
    fn without_an_order_gpus_deadlock_where_orders_differ(n_workers in 2..5usize, choices in choices()) {
        let mut world = World::new(&rules(n_workers, Order::Free), vec![vec![8; n_workers]; 2], true);
        world.run(&choices, |_| {}).unwrap();
        let n_common = world.orders[0].iter().zip(&world.orders[1]).take_while(|(a, b)| a == b).count();
        prop_assert_eq!(world.has_ended(), n_common == 8 * n_workers);
    }
}

#[test]
fn without_an_order_most_schedules_deadlock() {
    let deadlocks = (0..100u16).filter(|seed| {
        let choices: Vec<u16> = (0..400u16).map(|at| (at ^ seed).wrapping_mul(40_503).rotate_left(7)).collect();
        let mut world = World::new(&rules(3, Order::Free), vec![vec![8; 3]; 2], true);
        world.run(&choices, |_| {}).unwrap();
        !world.has_ended()
    });
    assert!(deadlocks.count() > 90);
}

#[test]
fn a_replay_says_what_does_not_fit() {
    let Order::Replay(log) = orders(1, 2, 3).swap_remove(5) else { panic!("the last is a replay") };
    let schedule = || LaunchSchedule::new(0, 1, &rules(2, Order::Replay(log.clone())));
    let error = schedule().register(1, 4).unwrap_err().to_string();
    assert!(error.contains("worker 1 wants to launch batch 4, but the log launches its batch 0"), "{error}");
    let error = schedule().close(0).unwrap_err().to_string();
    assert!(error.contains("worker 0 has signed off after 0 launches, but the log launches its batch 0"), "{error}");
    let empty = OrderLog { entries: Vec::new(), ..log.clone() };
    let error = LaunchSchedule::new(0, 1, &rules(2, Order::Replay(empty))).register(0, 0).unwrap_err().to_string();
    assert!(error.contains("the log has no more launches of it"), "{error}");
}

/// Messages that another rank can send, with arbitrary numbers in them.
fn contents() -> impl Strategy<Value = Content> {
    let number = || prop_oneof![0..4u64, any::<u64>()];
    let launch = || (number(), any::<u64>()).prop_map(|(worker, batch)| Launch { worker: worker as usize, batch });
    let progress = (number(), any::<Option<u64>>(), any::<bool>());
    let progress =
        progress.prop_map(|(n_launched, pending, has_signed_off)| Progress { n_launched, pending, has_signed_off });
    let status =
        (prop::collection::vec(progress, 0..4), prop::option::of(number()), prop::collection::vec(launch(), 0..4))
            .prop_map(|(workers, absent, recent)| Status { workers, absent: absent.map(|n| n as usize), recent });
    prop_oneof![
        (number(), launch()).prop_map(|(number, launch)| Content::Decided(number, launch)),
        (number(), number()).prop_map(|(worker, n)| Content::SignedOff(worker as usize, n)),
        status.prop_map(Content::Answer),
    ]
}

proptest! {
    /// Every message of another rank is accepted or is an error. Accepted messages do not break the diagnosis.
    #[test]
    fn no_message_panics(all in prop::collection::vec((0..3usize, contents()), 0..12), leader in 0..2usize) {
        let rules = rules(2, Order::Led { leader });
        let (mut schedule, mut statuses) = (LaunchSchedule::new(0, 3, &rules), vec![None; 3]);
        for (from, content) in all {
            let told = schedule.hear(from, &content);
            if let (Err(OrderError::Malformed { rank, .. }), _) = (&told, &content) {
                prop_assert_eq!(*rank, from);
            }
            if let (Ok(()), Content::Answer(status)) = (&told, content) {
                statuses[from] = Some(status);
            }
            let diagnosis = Diagnosis { rank: 0, rules: &rules, schedule: &schedule, statuses: &statuses };
            let launch = Launch { worker: 1, batch: 0 };
            drop((diagnosis.turn(launch), diagnosis.result(launch), diagnosis.end()));
        }
    }

    /// Arbitrary bytes decode to messages or to an error.
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, cut in any::<prop::sample::Index>(), content in contents()) {
        drop(Message::decode(&bytes));
        let whole = Message::encode(&[Message(content)]);
        prop_assert!(Message::decode(&whole[..cut.index(whole.len())]).is_err());
    }
}
