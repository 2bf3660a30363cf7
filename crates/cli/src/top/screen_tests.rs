//! Tests the screen with a fixed outcome.

use super::screen::draw;
use super::view::{Detail, Field, Mode, Shown, View};
use crate::ctl::epochs::Epoch;
use crate::observed::columns::{self, COLUMNS};
use crate::observed::page::{Besides, page};
use crate::observed::report;
use crate::observed::watched::Looks;
use lockwright_observer::counts::beyond::Wakes;
use lockwright_observer::counts::observation::{
    Advice, Observed, Percentiles, Ranked, Rule, Site, ThreadWaits,
};
use lockwright_observer::counts::snapshot::{LockKind, Of};
use lockwright_observer::table::Table;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

fn site(function: &str, place: &str, share: f64) -> Site {
    Site {
        function: function.to_owned(),
        place: place.to_owned(),
        address: 0x1000,
        count: 1200,
        ns: (share * 4e8) as u64,
        max_ns: 4_100_000,
        max_tid: 7,
        share,
        stack: vec![format!("{function} ({place})"), "main (store.c:90)".to_owned()],
        samples: None,
    }
}

fn lock(at: u64, name: &str, waiting: f64) -> Ranked {
    let wait = Percentiles {
        count: 900,
        p50_ns: 463,
        p99_ns: 14_300,
        p999_ns: 1_250_000,
        max_ns: 4_100_000,
        half_over_ns: 2_100_000,
        tenth_over_ns: 3_900_000,
    };
    Ranked {
        of: Of::Lock(at),
        tenant: 0,
        place: 1,
        kind: LockKind::Mutex,
        name: name.to_owned(),
        address: at,
        locks: 1,
        contended: 41_234,
        gave_up: 0,
        slept: 27,
        blamed_ns: 1,
        wait_ns: (1e9 * waiting) as u64,
        waiting,
        mean_ns: 67_900,
        hold_ns: 0,
        wait,
        wait_by_class: vec![(0, wait), (1, wait)],
        hold: wait,
        owner_changes: Some(0.75),
        core_changes: Some(0.5),
        longest_wait_at: "get (store.c:12)".to_owned(),
        longest_hold_at: "put (store.c:31)".to_owned(),
        waiters: vec![site("get", "store.c:12", 0.9), site("scan\u{1b}[2J", "store.c:40", 0.1)],
        holders: vec![site("put", "store.c:31", 1.0)],
        ..Ranked::default()
    }
}

const LONG: &str = "std::map<std::string, std::unique_ptr<Table>>::lock+0x40";

fn with_advice(lock: Ranked) -> Ranked {
    let advice = Advice {
        rule: Rule::LongSections,
        lost: 0.5,
        waiting_share: 0.5,
        holding: 0.1,
        in_sections: 0.6,
        text: "shorten put".to_owned(),
        note: String::new(),
        command: "lockwright profile -p 4242 --flame locks.svg".to_owned(),
    };
    Ranked { advice: Some(advice), ..lock }
}

fn view() -> View {
    let outcome = Observed {
        pid: 4242,
        command: "./store --port 8080".to_owned(),
        lock: "auto".to_owned(),
        elapsed_ns: 1_000_000_000,
        threads: 9,
        locks: vec![with_advice(lock(0x100, "store_lock", 2.8)), lock(0x200, LONG, 0.062)],
        ..Observed::default()
    };
    let mut process = Shown::new(outcome);
    process.rules = Table::read("auto:spin=5000\n");
    process.courses.insert(Of::Lock(0x100), [0.0, 0.4, 0.7, 1.4, 1.8, 2.6, 2.8, 2.8].into());
    View {
        interval: Duration::from_secs(1),
        list: None,
        row: 0,
        process: Some(process),
        mode: Mode::Locks,
        status: String::new(),
    }
}

fn drawn(view: &View) -> String {
    drawn_on(view, (80, 24))
}

fn drawn_on(view: &View, (columns, lines): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    terminal.backend().to_string()
}

/// The figures below these heads, in the first row of a table whose columns lie apart.
fn below(table: &str, heads: &[&str]) -> Vec<String> {
    let lines: Vec<&str> = table.lines().collect();
    let head = lines.iter().position(|line| heads.iter().all(|head| line.contains(head)));
    let at = head.unwrap_or_else(|| panic!("no {heads:?} in {table}"));
    let cell = |head: &&str| {
        // Figures stand to the right, below the end of their heads.
        let end = lines[at].find(head).unwrap() + head.len();
        let to_end: String = lines[at + 1].chars().take(lines[at][..end].chars().count()).collect();
        let words: Vec<&str> = to_end.split(' ').rev().take(2).collect();
        match words[..] {
            // A figure and its unit.
            [unit, figure] if figure.parse::<f64>().is_ok() => format!("{figure} {unit}"),
            [word, ..] => word.to_owned(),
            [] => String::new(),
        }
    };
    heads.iter().map(cell).collect()
}

/// Text, page, JSON and screen are made from one outcome. A number that one of them computes by itself would differ.
#[test]
fn a_term_has_one_number_everywhere() {
    let mut view = view();
    let outcome = &mut view.process.as_mut().unwrap().outcome;
    outcome.locks.truncate(1);
    outcome.locks[0].acquired = 77_000;
    (outcome.slice_ns, outcome.locks[0].course) = (500_000_000, vec![1_400_000_000; 2]);
    let outcome = outcome.clone();
    let lock = &outcome.locks[0];
    let text = report::all(std::slice::from_ref(&outcome), &Looks::default(), None);
    let looks = Looks::default();
    let besides = Besides { looks: &looks, standing: None, orders: None, sections: None };
    let page = page("a title", std::slice::from_ref(&outcome), besides, 10).unwrap();
    let json = serde_json::to_value(&outcome).unwrap();
    let screen = drawn_on(&view, (200, 50)).replace('"', "");
    let named: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    let shown: Vec<String> = COLUMNS.iter().map(|column| column.shown(lock)).collect();
    assert_eq!(below(&text, &named), shown, "{text}");
    let row: Vec<String> = COLUMNS
        .iter()
        .zip(&shown)
        .map(|(column, shown)| {
            format!("<td data-value=\"{}\">{shown}</td>", (column.figure)(lock).unwrap())
        })
        .collect();
    assert!(page.contains(&row.concat()), "{row:?} in {page}");
    // As docs/profile.md names the fields.
    let in_json = ["acquired", "contended", "wait_ns", "mean_ns", "wait/max_ns", "slept"];
    for (column, field) in COLUMNS.iter().zip(in_json) {
        let value = json.pointer(&format!("/locks/0/{field}")).unwrap().as_f64().unwrap();
        // The share of waits that slept is a number of waits there.
        let value = if field == "slept" { value / lock.contended as f64 } else { value };
        assert_eq!(Some(value), (column.figure)(lock), "{field}");
    }
    let on_screen = ["slept", "mean", "longest"];
    let same = on_screen.map(|name| columns::shown(name, lock));
    assert_eq!(below(&screen, &on_screen), same, "{screen}");
    // Threads that waited, on average: the screen, JSON, and the course in text and page.
    assert_eq!(below(&screen, &["waiting", "wait/s"])[0], format!("{:.2}", lock.waiting));
    assert_eq!(json["locks"][0]["waiting"], lock.waiting);
    // The page draws it.
    assert!(text.contains("peak 2.80 threads"), "{text}");
    for told in [&text, &page, &screen] {
        let long =
            "half of the time went into those of 2.10 ms and more, a tenth into 3.90 ms and more";
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(long), "{told}");
    }
    assert!(
        ![&text, &page, &screen, &json.to_string()].iter().any(|told| told.contains("blocked"))
    );
}

/// `TRYCMD=overwrite` updates the expected screen, as it does for trycmd's snapshots.
#[test]
fn the_screen_fits_80_columns_and_24_lines() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/screen.txt");
    let screen = drawn(&view());
    if std::env::var_os("TRYCMD").is_some_and(|what| what == "overwrite") {
        std::fs::write(path, &screen).unwrap();
    }
    assert_eq!(screen, std::fs::read_to_string(path).unwrap(), "\n{screen}");
    assert!(!screen.contains('\u{1b}'));
}

/// Who holds it and what to do stand before all else.
#[test]
fn a_small_screen_has_the_advice_and_a_large_one_the_rest() {
    let mut view = view();
    let lock = &mut view.process.as_mut().unwrap().outcome.locks[0];
    let place = |at| site(&format!("place_{at}"), "store.c:31", 0.2);
    (lock.holders, lock.waiters) = ((0..5).map(place).collect(), (5..10).map(place).collect());
    let thread = |tid| ThreadWaits {
        tid: Some(tid),
        name: String::new(),
        waits: 1,
        wait_ns: 2_000_000,
        blamed_ns: 1_000_000,
    };
    lock.threads = vec![thread(4243), thread(4244)];
    let small = drawn(&view);
    for words in
        ["held by   20 % place_0", "waited in 20 % place_5", "advice    shorten put", "flame"]
    {
        assert!(small.contains(words), "{words}:\n{small}");
    }
    assert!(!small.contains("place_2") && !small.contains("acquired"), "{small}");
    let large = drawn_on(&view, (200, 50));
    let rest =
        ["place_4", "place_9", "hand-over", "4244 waited 2.00 ms", "place_0 (store.c:31) < main"];
    for words in rest.iter().chain(&["acquired", "total wait"]) {
        assert!(large.contains(words), "{words}:\n{large}");
    }
    assert!(large.contains(LONG), "{large}");
}

#[test]
fn a_narrow_screen_has_the_culprit() {
    let narrow = drawn_on(&view(), (40, 24));
    for words in
        ["store_lock", "2.80", "67.9 µs", "4.10 ms", "held by   100 % put (store.c:31)", "advice"]
    {
        assert!(narrow.contains(words), "{words}:\n{narrow}");
    }
    for (columns, lines) in [(1, 1), (10, 5), (40, 10), (80, 12), (300, 100)] {
        drawn_on(&view(), (columns, lines)); // it must not panic
    }
}

#[test]
fn a_long_command_line_leaves_room_for_the_state() {
    let mut view = view();
    view.process.as_mut().unwrap().outcome.command =
        "java ".to_owned() + &"-Dsome=thing ".repeat(30);
    let screen = drawn(&view);
    assert!(screen.contains("9 threads, under auto:spin=5000, counters"), "{screen}");
}

fn turn() -> Ranked {
    let mut turn = lock(0x300, "turn", 4.0);
    let wakes =
        Wakes { broadcasts: 90, by_waiters: 90, woken: 300, wasted: 200, ..Wakes::default() };
    (turn.kind, turn.beyond.wakes) = (LockKind::Condition, Some(wakes));
    turn
}

/// Findings take lines from the table, but not all of them.
#[test]
fn findings_have_a_line_each_above_the_table() {
    let mut view = view();
    let process = view.process.as_mut().unwrap();
    process.outcome.conditions = vec![turn()];
    let screen = drawn(&view);
    let line = "* condition turn acts as a lock: 4.0 threads waited; 67 % woken in vain";
    assert!(screen.contains(line) && !screen.contains("and more"), "{screen}");
    let process = view.process.as_mut().unwrap();
    process.outcome.conditions = vec![turn(); 7];
    let screen = drawn(&view);
    assert!(screen.contains("* and more: lockwright profile -p 4242"), "{screen}");
    assert!(screen.contains("store_lock") && screen.contains("q quit"), "{screen}");
    assert_eq!(screen.matches("* condition turn acts as a lock").count(), 2, "{screen}");
}

/// The report's own words, in place of a lock's details.
#[test]
fn without_locks_the_details_are_those_of_the_findings() {
    let mut view = view();
    let process = view.process.as_mut().unwrap();
    process.outcome.locks.clear();
    assert!(drawn(&view).contains("no thread had to wait for a lock in the last 1.00 s"));
    view.process.as_mut().unwrap().outcome.conditions = vec![turn()];
    let screen = drawn(&view);
    assert!(screen.contains("turn, a condition variable that acts as a lock: "), "{screen}");
    assert!(!screen.contains("no thread had to wait"), "{screen}");
}

#[test]
fn epochs_have_their_slos_and_windows() {
    let mut view = view();
    let process = view.process.as_mut().unwrap();
    process.detail = Detail::Epochs;
    assert!(drawn(&view).contains("has no epochs"));
    let process = view.process.as_mut().unwrap();
    process.epochs = vec![Epoch {
        id: 3,
        name: "get".to_owned(),
        slo_ns: Some(100_000),
        is_set: false,
        percentile: 0.99,
        windows_ns: Some((70, 383)),
        ended: 50_000,
        missed: 250,
    }];
    let screen = drawn(&view);
    for words in ["50.0 k", "0.50 % missed", "100 µs at P99", "by the program", "70.0 ns to 383 ns"]
    {
        assert!(screen.contains(words), "{words}:\n{screen}");
    }
}

#[test]
fn keys_prompts_and_ends_are_shown() {
    let mut view = view();
    view.mode = Mode::Typing(Field::Rule, "fifo:by".to_owned());
    assert!(drawn(&view).contains("lock: fifo:by_"));
    view.mode = Mode::Typing(Field::Slo, "get 1m".to_owned());
    assert!(drawn(&view).contains("get 1m_"));
    view.mode = Mode::Help;
    for (key, what) in super::keys::KEYS {
        let screen = drawn(&view);
        assert!(screen.contains(key) && screen.contains(what), "{key}:\n{screen}");
    }
    view.mode = Mode::Locks;
    view.step(1);
    assert!(drawn(&view).contains("2. std::map<std::string"));
    view.step(5);
    view.step(-9);
    assert!(drawn(&view).contains("1. store_lock"));
    view.process.as_mut().unwrap().has_ended = true;
    view.act(|_| panic!("nothing is done to a process that has ended"));
    let screen = drawn(&view);
    assert!(screen.contains("has ended; its last state"), "{screen}");
    assert!(screen.contains("the process has ended"), "{screen}");
}
