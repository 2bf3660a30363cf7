//! Figures 9 and 10: databases, by operations that were recorded on a real machine.

use super::common::{ASL, BIG, EXISTING, LITTLE, OURS, PB10, throughput_and_tails};
use crate::plot::{Axis, Kind, Plot};
use crate::{Context, Error, Key, Load, Measured, Plan, Results, chosen, ratio};

/// A database's loads.
struct Database {
    id: &'static str,
    /// SLOs that rows name, us.
    slos: &'static [u32],
    /// Those of [`EXISTING`].
    existing: Vec<Key>,
    by_slo: Vec<Key>,
    max: Key,
    ours_max: Key,
}

impl Database {
    /// `sign`: whom LibASL without an SLO is compared with in a row that is judged by its sign.
    fn plan(
        plan: &mut Plan,
        (figure, id): (&str, &'static str),
        slos: &'static [u32],
        sign: Option<&str>,
    ) -> Result<Self, Error> {
        let scale = chosen(figure, "scale")?;
        let mut add = |lock: &str, slo: Option<u32>| {
            let load = Load::new(id, lock).with("scale", scale).lasting(20.0, 50.0);
            let load = if sign.is_some_and(|of| of == lock || lock == ASL && slo.is_none()) {
                load.often()
            } else {
                load
            };
            plan.add(match slo {
                // As in Bench-1: a little core ends one operation per SLO.
                Some(slo @ 200..) => load.with("slo_us", f64::from(slo)).lasting(100.0, 200.0),
                Some(slo) => load.with("slo_us", f64::from(slo)),
                None => load,
            })
        };
        Ok(Self {
            id,
            slos,
            existing: EXISTING.map(|lock| add(lock, None)).to_vec(),
            by_slo: slos.iter().map(|&slo| add(ASL, Some(slo))).collect(),
            max: add(ASL, None),
            ours_max: add(OURS, None),
        })
    }

    fn existing(&self, lock: &str) -> Key {
        let place = EXISTING.iter().position(|one| *one == lock);
        self.existing[place.expect("a row asks for a lock of the paper")]
    }

    fn with_slo(&self, slo: u32) -> Key {
        let place = self.slos.iter().position(|one| *one == slo);
        self.by_slo[place.expect("a row asks for an SLO that was run")]
    }

    /// Throughput of LibASL without an SLO to that of others, by the rows' names.
    fn speedups(&self, results: &Results, measured: &mut Measured) {
        let id = self.id;
        for (name, lock) in [("tas", "tas"), ("mcs", "mcs"), ("glibc", "glibc"), ("pb10", PB10)] {
            let to =
                |key| ratio(&results.throughput(key), &results.throughput(self.existing(lock)));
            measured.row(format!("{id} asl-max/{name}"), to(self.max));
            measured.also(format!("{id} our asl-max/{name}"), to(self.ours_max));
        }
    }

    /// LibASL with an SLO beside another lock: throughput and P99 latency.
    fn beside(&self, slo: u32, (name, lock): (&str, &str), results: &Results, into: &mut Measured) {
        let (asl, other) = (self.with_slo(slo), self.existing(lock));
        let throughput = ratio(&results.throughput(asl), &results.throughput(other));
        into.row(format!("{} asl-{slo}/{name}", self.id), throughput);
        let tails = ratio(&results.p99(asl), &results.p99(other));
        into.row(format!("{} p99 asl-{slo}/{name}", self.id), tails);
    }

    /// How long little cores' operations take, to the SLO.
    fn kept(&self, slo: u32, results: &Results, measured: &mut Measured) {
        let tail = results.p99_of(self.with_slo(slo), LITTLE);
        let to_slo = tail.iter().map(|tail| tail / f64::from(slo)).collect();
        measured.row(format!("{} p99 little/slo {slo}us", self.id), to_slo);
    }

    fn plot(&self, figure: &str, results: &Results) -> Plot {
        let names = EXISTING.iter().map(|&lock| if lock == PB10 { "pb10" } else { lock });
        let slos = self.slos.iter().map(|slo| format!("asl-{slo}"));
        let names = names.map(str::to_owned).chain(slos);
        let names: Vec<String> =
            names.chain(["asl-max".to_owned(), "our asl-max".to_owned()]).collect();
        let keys = self.existing.iter().chain(&self.by_slo).chain([&self.max, &self.ours_max]);
        let places: Vec<(f64, Key)> = (0_u32..).map(f64::from).zip(keys.copied()).collect();
        throughput_and_tails(
            &format!("{figure}-{}", self.id),
            &format!("{figure}: {}, recorded operations (asl-N: SLO of N us)", self.id),
            Axis::names("", names),
            (Kind::Bars, Kind::Marks),
            results,
            &places,
        )
    }
}

/// Kyoto Cabinet and LMDB.
pub(super) fn figure_9(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let kyoto = Database::plan(&mut plan, ("libasl-9", "kyoto"), &[40, 70], Some("tas"))?;
    let lmdb = Database::plan(&mut plan, ("libasl-9", "lmdb"), &[600], Some(PB10))?;
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    kyoto.beside(70, ("tas", "tas"), &results, &mut measured);
    kyoto.beside(40, ("pb10", PB10), &results, &mut measured);
    for slo in [40, 70] {
        kyoto.kept(slo, &results, &mut measured);
    }
    lmdb.beside(600, ("tas", "tas"), &results, &mut measured);
    for database in [kyoto, lmdb] {
        database.speedups(&results, &mut measured);
        measured.plots.push(database.plot("libasl-9", &results));
    }
    Ok(measured)
}

/// LevelDB and SQLite.
pub(super) fn figure_10(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let leveldb = Database::plan(&mut plan, ("libasl-10", "leveldb"), &[15], Some(PB10))?;
    let sqlite = Database::plan(&mut plan, ("libasl-10", "sqlite"), &[], None)?;
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    leveldb.beside(15, ("tas", "tas"), &results, &mut measured);
    let (tas, mcs) = (sqlite.existing("tas"), sqlite.existing("mcs"));
    measured.row("sqlite tas/mcs", ratio(&results.throughput(tas), &results.throughput(mcs)));
    measured.row("sqlite p99 tas/mcs", ratio(&results.p99(tas), &results.p99(mcs)));
    let to_big = ratio(&results.p99_of(tas, BIG), &results.p99_of(tas, LITTLE));
    measured.row("sqlite p99 big/little of tas", to_big);
    for database in [leveldb, sqlite] {
        database.speedups(&results, &mut measured);
        measured.plots.push(database.plot("libasl-10", &results));
    }
    Ok(measured)
}
