//! What a fit measures is what the figure shows.

use lockwright_figures::{Context, find, find_fitted};
use lockwright_sim::profile;
use lockwright_sim::targets::{self, Row};
use std::sync::Arc;

#[test]
fn the_rows_that_a_fit_sees_are_the_figure_s_own() {
    for (id, _) in targets::FIGURES {
        let (Some(whole), Some(least)) = (find(id), find_fitted(id)) else { continue };
        let figure = targets::figure(id).unwrap();
        let rows: Vec<&Row> = figure.row.iter().filter(|row| row.fit).collect();
        if rows.is_empty() {
            continue;
        }
        let profile = Arc::new(profile::builtin(&figure.machine).unwrap());
        let context = || Context { length: 0.01, ..Context::new(profile.clone(), 2) };
        let (whole, least) =
            ((whole.measure)(&context()).unwrap(), (least.measure)(&context()).unwrap());
        for row in rows {
            let values = whole.rows.get(&row.name);
            assert!(
                values.is_some_and(|values| values.len() == 2),
                "{id}: {}: {values:?}",
                row.name
            );
            assert_eq!(values, least.rows.get(&row.name), "{id}: {}", row.name);
        }
    }
}
