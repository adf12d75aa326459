//! Colours: custom properties of both themes, and a perceptually uniform diverging scale.

use std::fmt::Write as _;

/// Number of steps of the diverging scale, with the neutral one in the middle.
pub(crate) const STEPS: usize = 21;

type Rgb = [f64; 3];

/// Ends and middle of the diverging scale in sRGB.
struct Ends {
    low: u32,
    middle: u32,
    high: u32,
}

const LIGHT: Ends = Ends { low: 0x1f_5fa8, middle: 0xf3_f2ef, high: 0xb4_540a };
const DARK: Ends = Ends { low: 0x6c_b0ff, middle: 0x2a_2e35, high: 0xff_9d4a };

/// Names and values of all colours except the diverging scale.
const LIGHT_COLOURS: &str = "--paper:#fff;--raised:#f6f7f8;--ink:#1a1d21;--soft:#565d66;--rule:#d5d9de;--grid:#e7e9ec;--accent:#1f5fa8;--accent-soft:#dbe7f5;--second:#b4540a;--good:#1d6b3c;--bad:#a3262a;--mark:#fff3bf;";
const DARK_COLOURS: &str = "--paper:#14171b;--raised:#1c2026;--ink:#e7e9ec;--soft:#a4acb7;--rule:#3a414b;--grid:#2a3038;--accent:#7db8ff;--accent-soft:#1d3350;--second:#ffab61;--good:#7fd09a;--bad:#ff9a97;--mark:#5a4a00;";

/// CSS rules of plots.
const PLOT_RULES: &str = include_str!("plot.css");

/// Step for a value in [0, 1].
pub(crate) fn step(value: f64) -> usize {
    ((value.clamp(0.0, 1.0) * (STEPS - 1) as f64).round()) as usize
}

/// CSS of the page's colours and plots. The theme follows the system or the attribute `data-theme` of the root; print
/// is always light.
pub(crate) fn page_style() -> String {
    format!("{}\n{}", themed(&properties(LIGHT_COLOURS, &LIGHT), &properties(DARK_COLOURS, &DARK)), rules())
}

/// CSS of the colours alone: custom properties such as `--paper`, `--ink` and `--accent`.
pub fn theme_style() -> String {
    themed(LIGHT_COLOURS, DARK_COLOURS)
}

fn themed(light: &str, dark: &str) -> String {
    let screen = format!(":root{{color-scheme:light;{light}}}\n:root[data-theme=dark]{{color-scheme:dark;{dark}}}");
    let dark =
        format!("@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}");
    let paper =
        format!("@media print{{:root,:root[data-theme],:root:not([data-theme=light]){{color-scheme:light;{light}}}}}");
    [screen, dark, paper].join("\n")
}

/// CSS of a plot in its own file.
pub(crate) fn standalone_style() -> String {
    let (light, dark) = (properties(LIGHT_COLOURS, &LIGHT), properties(DARK_COLOURS, &DARK));
    let font = "svg{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif}.paper{fill:var(--paper)}";
    // The result is embedded in XML, where CSS would not decode entities, so it must not contain `<` or `&`.
    format!(":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{font}{}", rules())
}

fn rules() -> String {
    let mut rules = PLOT_RULES.to_owned();
    for step in 0..STEPS {
        let _ = write!(rules, ".h{step}{{fill:var(--h{step})}}.i{step}{{fill:var(--i{step})}}");
    }
    rules
}

/// Custom properties of the colours and the diverging scale: `--hN` is a fill, `--iN` the text colour on it.
fn properties(colours: &str, ends: &Ends) -> String {
    let mut properties = colours.to_owned();
    for step in 0..STEPS {
        let colour = diverging(ends, step);
        let ink = if contrast(colour, 0x00_0000) > contrast(colour, 0xff_ffff) { "#000" } else { "#fff" };
        let _ = write!(properties, "--h{step}:#{colour:06x};--i{step}:{ink};");
    }
    properties
}

/// Interpolates in `OKLab` (Ottosson 2020) from one end through the middle to the other.
fn diverging(ends: &Ends, step: usize) -> u32 {
    let half = (STEPS - 1) / 2;
    let (from, to, share) = if step <= half {
        (ends.low, ends.middle, step as f64 / half as f64)
    } else {
        (ends.middle, ends.high, (step - half) as f64 / half as f64)
    };
    let (from, to) = (oklab(from), oklab(to));
    srgb(std::array::from_fn(|k| from[k] + (to[k] - from[k]) * share))
}

fn linear(colour: u32) -> Rgb {
    [16, 8, 0].map(|shift| {
        let c = f64::from((colour >> shift) & 0xff) / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    })
}

fn product(matrix: [Rgb; 3], v: Rgb) -> Rgb {
    matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
}

fn oklab(colour: u32) -> Rgb {
    const TO_LMS: [Rgb; 3] = [
        [0.412_221_47, 0.536_332_54, 0.051_445_99],
        [0.211_903_5, 0.680_699_55, 0.107_396_96],
        [0.088_302_46, 0.281_718_84, 0.629_978_7],
    ];
    const TO_LAB: [Rgb; 3] = [
        [0.210_454_26, 0.793_617_79, -0.004_072_05],
        [1.977_998_5, -2.428_592_2, 0.450_593_71],
        [0.025_904_04, 0.782_771_77, -0.808_675_77],
    ];
    product(TO_LAB, product(TO_LMS, linear(colour)).map(f64::cbrt))
}

fn srgb(lab: Rgb) -> u32 {
    const TO_LMS: [Rgb; 3] =
        [[1.0, 0.396_337_78, 0.215_803_76], [1.0, -0.105_561_35, -0.063_854_17], [1.0, -0.089_484_18, -1.291_485_55]];
    const TO_RGB: [Rgb; 3] = [
        [4.076_741_66, -3.307_711_59, 0.230_969_93],
        [-1.268_438, 2.609_757_4, -0.341_319_4],
        [-0.004_196_09, -0.703_418_61, 1.707_614_7],
    ];
    let byte = |c: f64| {
        let c = c.clamp(0.0, 1.0);
        let c = if c <= 0.003_130_8 { 12.92 * c } else { 1.055 * c.powf(1.0 / 2.4) - 0.055 };
        (c * 255.0).round() as u32
    };
    product(TO_RGB, product(TO_LMS, lab).map(|v| v * v * v)).into_iter().fold(0, |colour, c| (colour << 8) | byte(c))
}

/// WCAG contrast ratio.
fn contrast(a: u32, b: u32) -> f64 {
    let luminance = |colour| {
        let [r, g, b] = linear(colour);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    (a / b).max(b / a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_meets_its_ends_and_its_middle() {
        for ends in [LIGHT, DARK] {
            assert_eq!(
                (diverging(&ends, 0), diverging(&ends, 10), diverging(&ends, 20)),
                (ends.low, ends.middle, ends.high)
            );
        }
    }

    #[test]
    fn what_is_written_on_any_step_can_be_read() {
        for ends in [LIGHT, DARK] {
            for step in 0..STEPS {
                let colour = diverging(&ends, step);
                assert!(contrast(colour, 0).max(contrast(colour, 0xff_ffff)) >= 4.5, "{step} {colour:06x}");
            }
        }
    }

    #[test]
    fn colours_of_text_have_the_contrast_that_is_asked_for() {
        for colours in [LIGHT_COLOURS, DARK_COLOURS] {
            let value = |name: &str| {
                let (_, rest) = colours.split_once(&format!("--{name}:#")).expect("named");
                let hex = rest.split_once(';').expect("ended").0;
                let hex = if hex.len() == 3 { hex.chars().flat_map(|c| [c, c]).collect() } else { hex.to_owned() };
                u32::from_str_radix(&hex, 16).expect("a colour")
            };
            for text in ["ink", "soft", "accent", "second", "good", "bad"] {
                for ground in ["paper", "raised"] {
                    assert!(contrast(value(text), value(ground)) >= 4.5, "{text} on {ground}");
                }
            }
            assert!(
                contrast(value("ink"), value("mark")) >= 4.5 && contrast(value("accent"), value("accent-soft")) >= 4.5
            );
        }
    }

    #[test]
    fn a_style_in_a_file_cannot_break_its_xml() {
        assert!(!standalone_style().contains(['<', '&']));
    }
}
