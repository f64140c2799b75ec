//! How much memory the graphs that were made ready take at each launch.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use crate::abi::*;
use crate::driver::Driver;

use super::Process;
use super::gpus::Gpu;
use super::locks::{lock, read, write};

/// What a graph takes of one card.
#[derive(Clone, Copy)]
pub struct Need {
    /// The card.
    pub gpu: &'static Gpu,
    /// What the driver calls it.
    pub device: CUdevice,
    /// At the most, in bytes.
    pub bytes: u64,
}

/// What the launches of one graph do to memory.
#[derive(Default)]
pub struct Plan {
    /// What it takes, card by card.
    pub needs: Vec<Need>,
    /// What it allocates and does not free itself: address, device, bytes.
    leaves: Vec<(CUdeviceptr, CUdevice, u64)>,
    /// What it frees that it has not allocated.
    frees: Vec<CUdeviceptr>,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.needs.is_empty() && self.frees.is_empty()
    }
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Graphs {
    /// Whether any graph takes memory: most programs have none that does, and launch many.
    any: AtomicBool,
    ready: RwLock<HashMap<usize, Arc<Plan>>>,
    /// What launches have left allocated.
    live: Mutex<HashSet<CUdeviceptr>>,
}

/// How deep graphs may lie in each other before it is enough.
const DEEPEST: usize = 16;

impl Graphs {
    /// `exec` was made ready.
    pub fn ready(&self, exec: usize, plan: Arc<Plan>) {
        if plan.is_empty() && !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut ready = write(&self.ready);
        // A handle may be one that was used before.
        if plan.is_empty() {
            ready.remove(&exec);
        } else {
            ready.insert(exec, plan);
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// What a launch of `exec` does; `None` for nothing.
    #[inline]
    pub fn plan_of(&self, exec: usize) -> Option<Arc<Plan>> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        read(&self.ready).get(&exec).cloned()
    }

    /// Forgets `exec`.
    pub fn take(&self, exec: usize) -> Option<Arc<Plan>> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        write(&self.ready).remove(&exec)
    }

    /// What a launch takes of `device` beyond what an earlier one has left, which it frees first if it may be launched at
    /// all, in bytes.
    pub fn takes(&self, plan: &Plan, need: &Need) -> u64 {
        let live = lock(&self.live);
        let left = plan
            .leaves
            .iter()
            .filter(|(address, device, _)| *device == need.device && live.contains(address));
        need.bytes.saturating_sub(left.map(|(.., bytes)| bytes).sum())
    }

    /// A launch was done.
    pub fn launched(&self, plan: &Plan) {
        for address in &plan.frees {
            self.forget(*address);
        }
        lock(&self.live).extend(plan.leaves.iter().map(|(address, ..)| *address));
    }

    /// A launch was refused by the driver, and may have freed what an earlier one had left. What is forgotten too much costs a
    /// refusal at the most.
    #[cold]
    pub fn not_launched(&self, plan: &Plan) {
        for (address, ..) in &plan.leaves {
            self.forget(*address);
        }
    }

    /// The program freed what may have been left by a launch.
    #[inline]
    pub fn freed(&self, address: CUdeviceptr) {
        if self.any.load(Ordering::Relaxed) {
            self.forget(address);
        }
    }

    #[inline(never)]
    fn forget(&self, address: CUdeviceptr) {
        lock(&self.live).remove(&address);
    }

    /// A context is gone, and what launches had left in it. What is forgotten too much costs a refusal at the most.
    pub fn context_gone(&self) {
        lock(&self.live).clear();
    }

    /// Looks through a graph for what its launches will do.
    pub fn plan(&self, process: &Process, driver: usize, api: &Driver, graph: CUgraph) -> Arc<Plan> {
        let mut sums: Vec<(CUdevice, u64)> = Vec::new();
        let mut plan = Plan::default();
        collect(api, graph, DEEPEST, &mut sums, &mut plan);
        let need = |(device, bytes)| {
            Some(Need { gpu: process.gpus.by_device(process, driver, device)?, device, bytes })
        };
        // One graph may free what another allocates that lies in the same.
        plan.leaves.retain(|(address, ..)| !plan.frees.contains(address));
        plan.needs = sums.into_iter().filter_map(need).collect();
        Arc::new(plan)
    }
}

fn nodes_of(api: &Driver, graph: CUgraph) -> Option<Vec<CUgraphNode>> {
    let mut count = 0;
    // SAFETY: no list, and a live local that the driver fills.
    unsafe { api.graph_nodes(graph, core::ptr::null_mut(), &mut count) }.ok()?;
    let mut nodes = vec![core::ptr::null_mut(); count];
    // SAFETY: the list has room for as many as `count` says.
    unsafe { api.graph_nodes(graph, nodes.as_mut_ptr(), &mut count) }.ok()?;
    nodes.truncate(count);
    Some(nodes)
}

/// What a graph has of a card as its nodes are gone through, in bytes: by now, and at the most.
struct Card {
    device: CUdevice,
    now: u64,
    most: u64,
}

impl Card {
    #[inline(never)]
    fn of(cards: &mut Vec<Card>, device: CUdevice) -> &mut Card {
        let known = cards.iter().position(|card| card.device == device);
        let at = known.unwrap_or_else(|| {
            cards.push(Card { device, now: 0, most: 0 });
            cards.len() - 1
        });
        &mut cards[at]
    }
}

/// Adds what `graph` takes at the most to `sums`, and what it leaves and frees to `plan`.
fn collect(api: &Driver, graph: CUgraph, depth: usize, sums: &mut Vec<(CUdevice, u64)>, plan: &mut Plan) {
    let Some(nodes) = nodes_of(api, graph).filter(|_| depth > 0) else { return };
    // In a chain what was freed is there for what comes after it. Branches may run at the same time, and then all that
    // they allocate may be there at once.
    let chain = is_chain(api, graph, nodes.len());
    let mut live: HashMap<CUdeviceptr, (CUdevice, u64)> = HashMap::new();
    let mut cards: Vec<Card> = Vec::new();
    for node in nodes {
        let mut kind = 0;
        // SAFETY: the graph's own node; the output is a live local of the type that the driver fills.
        if unsafe { api.graph_node_type(node, &mut kind) }.is_err() {
            continue;
        }
        match kind {
            NODE_MEM_ALLOC => {
                // SAFETY: all-zero is a valid record of integers and pointers.
                let mut parameters: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { core::mem::zeroed() };
                // SAFETY: a node of that kind; the output is a live local of the type that the driver fills.
                if unsafe { api.graph_alloc_params(node, &mut parameters) }.is_ok() {
                    let device = parameters.pool.location.id;
                    let bytes = crate::policy::blocks(parameters.bytes as u64);
                    live.insert(parameters.address, (device, bytes));
                    let card = Card::of(&mut cards, device);
                    card.now = card.now.saturating_add(bytes);
                    card.most = card.most.max(card.now);
                }
            }
            NODE_MEM_FREE => {
                let mut address = 0;
                // SAFETY: a node of that kind; the output is a live local of the type that the driver fills.
                if unsafe { api.graph_free_params(node, &mut address) }.is_err() {
                    continue;
                }
                match live.remove(&address) {
                    Some((device, bytes)) if chain => Card::of(&mut cards, device).now -= bytes,
                    Some(_) => {}
                    None => plan.frees.push(address),
                }
            }
            NODE_GRAPH => {
                let mut child = core::ptr::null_mut();
                // SAFETY: a node of that kind; the output is a live local of the type that the driver fills.
                if unsafe { api.graph_child(node, &mut child) }.is_ok() {
                    collect(api, child, depth - 1, sums, plan);
                }
            }
            _ => {}
        }
    }
    plan.leaves.extend(live.into_iter().map(|(address, (device, bytes))| (address, device, bytes)));
    for Card { device, most, .. } in cards {
        match sums.iter_mut().find(|(known, _)| *known == device) {
            Some((_, sum)) => *sum = sum.saturating_add(most),
            None => sums.push((device, most)),
        }
    }
}

/// Whether the nodes of a graph come one after another, in the order in which the driver lists them.
fn is_chain(api: &Driver, graph: CUgraph, nodes: usize) -> bool {
    let mut count = 0;
    let none: *mut CUgraphNode = core::ptr::null_mut();
    // SAFETY: no lists, and a live local that the driver fills.
    if unsafe { api.graph_edges(graph, none, none, &mut count) }.is_err() || count + 1 != nodes {
        return false;
    }
    let (mut from, mut to) = (vec![core::ptr::null_mut(); count], vec![core::ptr::null_mut(); count]);
    // SAFETY: both lists have room for as many as `count` says.
    if unsafe { api.graph_edges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count) }.is_err() {
        return false;
    }
    let order = nodes_of(api, graph).unwrap_or_default();
    let follows = |pair: &[CUgraphNode]| from.iter().zip(&to).any(|(from, to)| pair == [*from, *to]);
    order.len() == nodes
        && from.len() == count
        && in_order(&order, &from, &to).unwrap_or_else(|| order.windows(2).all(follows))
}

/// The usual case, in which the edges are listed in order too; `None` where they are not.
fn in_order(order: &[CUgraphNode], from: &[CUgraphNode], to: &[CUgraphNode]) -> Option<bool> {
    let listed = from == &order[..order.len() - 1] && to == &order[1..];
    if listed {
        return Some(true);
    }
    // Looking every pair up is for small graphs.
    (order.len() > 256).then_some(false)
}
