//! What theory says.
//!
//! Where all blocks of a class are equally likely to be written, and a class that lives in `s`
//! blocks has `c` to lie in, segments are emptied in the order of their filling down to the share u
//! with (1 − u) / −ln u = s / c, and the write amplification is 1 / (1 − u). That is exact for
//! large segments cleaned first in, first out, and what greedy cleaning tends to (Menon, "A
//! performance comparison of RAID-5 and log-structured arrays", HPDC 1995; Robinson, "Analysis of
//! steady-state segment storage utilizations in a log-structured file system with least-utilized
//! segment cleaning", OSR 30(4), 1996; Desnoyers, "Analytic models of SSD write performance", TOS
//! 10(2), 2014, who solves it with Lambert's W). Were the rate of each block known, blocks of equal
//! rate would be kept apart and the dead space be given where it saves most: that is the limit for
//! policies that cannot see when a block will die.

/// The write amplification of blocks alike that have `spare` times their size to lie in.
///
/// # Panics
/// When `spare` is not above 1.
pub(crate) fn uniform(spare: f64) -> f64 {
    assert!(spare > 1.0, "without dead space nothing can be cleaned");
    // spare · (1 − u) = −ln u, of which u = 1 is the solution that is not wanted.
    let (mut low, mut high) = (f64::MIN_POSITIVE, 1.0 / spare);
    for _ in 0..60 {
        let u = f64::midpoint(low, high);
        if spare * (1.0 - u) < -u.ln() {
            low = u;
        } else {
            high = u;
        }
    }
    1.0 / (1.0 - low)
}

/// The least write amplification for classes of blocks, each as (its share of what lives, its share
/// of what is written), on a volume of which `live` is alive.
pub(crate) fn known_rates(classes: &[(f64, f64)], live: f64) -> f64 {
    let cost = |spares: &[f64]| -> f64 {
        classes.iter().zip(spares).map(|((_, rate), spare)| rate * uniform(*spare)).sum()
    };
    // The price of room at which what all classes want is what there is.
    let (mut low, mut high) = (1e-9_f64, 1e9_f64);
    let mut spares = Vec::new();
    for _ in 0..60 {
        let price = (low * high).sqrt();
        spares = classes.iter().map(|(size, rate)| wanted(rate / size, price)).collect();
        let room: f64 = classes.iter().zip(&spares).map(|((size, _), spare)| size * spare).sum();
        if room > 1.0 / live {
            low = price;
        } else {
            high = price;
        }
    }
    cost(&spares)
}

/// How much room, in times its size, a class written at `rate` wants when room costs `price`: up to
/// where a little more room saves as much writing as it costs.
fn wanted(rate: f64, price: f64) -> f64 {
    let (mut low, mut high) = (1.0 + 1e-6, 60.0_f64);
    for _ in 0..40 {
        let spare = (low * high).sqrt();
        let step = (spare - 1.0) * 1e-3;
        let saved = rate * (uniform(spare - step) - uniform(spare + step)) / (2.0 * step);
        if saved > price {
            low = spare;
        } else {
            high = spare;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_amplification_of_uniform_writing_is_the_published_one() {
        // Desnoyers, α / (α + W(−α·e^−α)) with α = 1.25 and W = −0.7858.
        assert!((uniform(1.25) - 2.69).abs() < 0.01);
        assert!((uniform(2.0) - 1.255).abs() < 0.001);
        assert!((uniform(50.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn knowing_rates_gains_nothing_where_all_are_alike() {
        let split = known_rates(&[(0.3, 0.3), (0.7, 0.7)], 0.8);
        assert!((split - uniform(1.25)).abs() < 0.01, "{split}");
    }

    #[test]
    fn knowing_rates_halves_what_hot_and_cold_cost() {
        let limit = known_rates(&[(0.1, 0.9), (0.9, 0.1)], 0.8);
        assert!((1.47..1.49).contains(&limit), "{limit}");
    }
}
