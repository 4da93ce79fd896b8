// SPDX-License-Identifier: GPL-2.0

//! Bar charts.

use anyhow::{anyhow, Result};
use plotters::prelude::*;

/// Groups of bars: each has a label, and a value per series, if there is one.
pub struct Bars<'a> {
    /// The text above the plot.
    pub title: &'a str,
    /// The labels of the bars in a group, in their order.
    pub series: &'a [&'a str],
    /// The groups.
    pub groups: Vec<(String, Vec<Option<f64>>)>,
}

const SIZE: (u32, u32) = (860, 420);
const COLORS: [RGBColor; 3] = [
    RGBColor(0x2b, 0x6c, 0xb0),
    RGBColor(0xa0, 0xae, 0xc0),
    RGBColor(0xdd, 0x6b, 0x20),
];
/// The part of a group's width that the bars fill.
const FILLED: f64 = 0.8;

impl Bars<'_> {
    /// The chart as SVG.
    pub fn svg(&self) -> Result<String> {
        let mut out = String::new();
        self.draw(&mut out).map_err(|e| anyhow!("{e}"))?;
        Ok(out)
    }

    fn draw(&self, out: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let area = SVGBackend::with_string(out, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let values = self.groups.iter().flat_map(|(_, values)| values);
        let top = values.flatten().fold(1.0, |a: f64, b| a.max(*b)) * 1.1;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..self.groups.len() as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_label_formatter(&|y| format!("{y:.0}"))
            .draw()?;
        let width = FILLED / self.series.len() as f64;
        for (n, name) in self.series.iter().enumerate() {
            let color = COLORS[n % COLORS.len()];
            let bars = self
                .groups
                .iter()
                .enumerate()
                .filter_map(|(at, (_, values))| {
                    let value = values.get(n).copied().flatten()?;
                    let left = at as f64 + (1.0 - FILLED) / 2.0 + n as f64 * width;
                    let corners = [(left, 0.0), (left + width * 0.94, value)];
                    Some(Rectangle::new(corners, color.filled()))
                });
            chart.draw_series(bars)?.label(*name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled())
            });
        }
        let label = ("sans-serif", 13).into_font();
        for (at, (name, values)) in self.groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(at as f64 + 0.5, 0.0));
            let left = x - 4 * name.len() as i32 / 2 - 10;
            area.draw(&Text::new(name.clone(), (left, y + 10), label.clone()))?;
            for (n, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let left = at as f64 + (1.0 - FILLED) / 2.0 + n as f64 * width;
                let (x, y) = chart.backend_coord(&(left, *value));
                let text = format!("{value:.0}");
                area.draw(&Text::new(
                    text,
                    (x, y - 14),
                    ("sans-serif", 11).into_font(),
                ))?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_plot() {
        let bars = Bars {
            title: "a title",
            series: &["one", "other"],
            groups: vec![
                ("first".into(), vec![Some(12.0), Some(34.0)]),
                ("second".into(), vec![Some(56.0), None]),
            ],
        };
        let svg = bars.svg().unwrap();
        for text in [
            "a title", "one", "other", "first", "second", "12", "34", "56",
        ] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
