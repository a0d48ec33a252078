#include "run/figure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "run/report.hpp"

namespace calm::apps {

namespace {

// Differences and ratios of drawable numbers are finite.
bool is_drawable(double value, int logarithm) {
    return std::abs(value) <= 1e150 && (logarithm == 0 || value >= 1e-150);
}

struct number_range {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    void add(double value) {
        low = std::min(low, value);
        high = std::max(high, value);
    }
};

// Without a value: [0, 1], or [1, base]. A range that doubles can hardly divide is widened.
number_range with_extent(number_range r, int logarithm) {
    if (r.low > r.high) return logarithm != 0 ? number_range{1, static_cast<double>(logarithm)} : number_range{0, 1};
    double const largest = std::max(std::abs(r.low), std::abs(r.high));
    if (r.high - r.low > 1e-9 * largest && r.high - r.low > 1e-140) return r;
    if (logarithm != 0) return {r.low / 1.1, r.high * 1.1};
    if (largest <= 1e-140) return {0, 1};
    return {r.low - 0.1 * largest, r.high + 0.1 * largest};
}

double step_of(number_range r, int most) {
    double const least = (r.high - r.low) / most;
    double const power = std::pow(10, std::floor(std::log10(least)));
    for (double const times : {1, 2, 5})
        if (times * power >= least * (1 - 1e-9)) return times * power;
    return 10 * power;
}

// Digits that tell neighbouring ticks apart.
int digits_of(number_range r, double step) {
    double const most = std::max(std::abs(r.low), std::abs(r.high));
    return std::clamp(static_cast<int>(std::ceil(std::log10(most / step))) + 1, 4, 15);
}

std::vector<axis_tick> linear_ticks(number_range r, double step) {
    std::vector<axis_tick> ticks;
    auto const last = static_cast<long long>(std::floor(r.high / step + 1e-6));
    for (auto i = static_cast<long long>(std::ceil(r.low / step - 1e-6)); i <= last; ++i) {
        double const at = static_cast<double>(i) * step;
        ticks.push_back({at, tick_text(at, digits_of(r, step))});
    }
    return ticks;
}

std::vector<axis_tick> logarithmic_ticks(number_range r, int base, int most) {
    auto const power_of = [&](double value) { return std::log(value) / std::log(base); };
    auto const first = static_cast<int>(std::ceil(power_of(r.low) - 1e-9)),
               last = static_cast<int>(std::floor(power_of(r.high) + 1e-9));
    std::vector<axis_tick> ticks;
    if (base == 10) {
        for (int power = first - 1; power <= last; ++power)
            for (double const times : {1, 2, 5})
                if (double const at = times * std::pow(10, power);
                    at >= r.low * (1 - 1e-9) && at <= r.high * (1 + 1e-9))
                    ticks.push_back({at, tick_text(at)});
        if (ticks.size() < 3) return linear_ticks(r, step_of(r, most));
        if (ticks.size() <= static_cast<std::size_t>(most) + 2) return ticks;
        ticks.clear();
    }
    int const apart = std::max(1, (last - first + most - 1) / most);
    for (int power = first; power <= last; power += apart)
        ticks.push_back({std::pow(base, power), tick_text(std::pow(base, power))});
    return ticks;
}

axis_scale scale_of(plot_axis const& axis, number_range r, int most, bool ends_at_ticks) {
    if (is_drawable(axis.most, axis.logarithm) && axis.most > 0) r.add(axis.most);
    if (axis.from_zero && axis.logarithm == 0) r.add(0);
    r = with_extent(r, axis.logarithm);
    if (axis.logarithm != 0) {
        // Dots stay clear of the frame.
        double const space = std::max(std::pow(r.high / r.low, 0.04), ends_at_ticks ? 1.0 : std::sqrt(axis.logarithm));
        r = {r.low / space, r.high * space};
        return {r.low, r.high, axis.logarithm, logarithmic_ticks(r, axis.logarithm, most)};
    }
    double const step = step_of(r, most);
    if (ends_at_ticks) r = {std::floor(r.low / step + 1e-6) * step, std::ceil(r.high / step - 1e-6) * step};
    return {r.low, r.high, 0, linear_ticks(r, step)};
}

}  // namespace

std::vector<plot_point> thinned(std::vector<plot_point> points, std::size_t columns) {
    std::erase_if(points, [](plot_point const& p) { return !is_drawable(p.x, 0) || !is_drawable(p.y, 0); });
    std::stable_sort(points.begin(), points.end(), [](auto const& a, auto const& b) { return a.x < b.x; });
    if (points.size() <= 4 * columns) return points;
    double const low = points.front().x, extent = points.back().x - low;
    auto const column = [&](plot_point const& p) {
        auto const at = extent > 0 ? (p.x - low) / extent * static_cast<double>(columns) : 0;
        return std::min(columns - 1, static_cast<std::size_t>(at));
    };
    std::vector<plot_point> kept;
    for (auto first = points.begin(); first != points.end();) {
        auto const end = std::find_if(first, points.end(), [&](auto const& p) { return column(p) != column(*first); });
        auto const [lowest, highest] =
            std::minmax_element(first, end, [](auto const& a, auto const& b) { return a.y < b.y; });
        std::set const of_column{first, lowest, highest, end - 1};
        for (auto const at : of_column) kept.push_back(*at);
        first = end;
    }
    return kept;
}

std::string tick_text(double n, int digits) {
    std::string unit;
    for (auto const* const larger : {" k", " M", " G", " T"}) {
        if (std::abs(n) < 1000) break;
        n /= 1000;
        unit = larger;
    }
    return formatted("%.*g", digits, n) + unit;
}

double axis_scale::place(double value) const {
    if (logarithm != 0) value = std::max(value, low);
    auto const of = [&](double x) { return logarithm != 0 ? std::log(x) : x; };
    return std::clamp((of(value) - of(low)) / (of(high) - of(low)), 0.0, 1.0);
}

axis_scale scale_of_x(plot_panel const& panel, int most) {
    number_range r;
    for (auto const& curve : panel.curves)
        for (auto const& p : visible(panel, curve)) r.add(p.x);
    return scale_of(panel.x, r, most, false);
}

axis_scale scale_of_y(plot_panel const& panel, int most) {
    number_range r;
    for (auto const& curve : panel.curves)
        for (auto const& p : visible(panel, curve))
            for (double const y : {p.y, p.y - p.error, p.y + p.error})
                if (is_drawable(y, panel.y.logarithm)) r.add(y);
    return scale_of(panel.y, r, most, true);
}

std::vector<plot_point> visible(plot_panel const& panel, plot_curve const& curve) {
    std::vector<plot_point> seen;
    for (auto p : curve.points) {
        if (!is_drawable(p.x, panel.x.logarithm) || !is_drawable(p.y, panel.y.logarithm)) continue;
        if (!(p.error >= 0 && is_drawable(p.error, 0))) p.error = 0;
        seen.push_back(p);
    }
    return seen;
}

std::string figure_in_words(plot_figure const& figure) {
    std::string text;
    std::set<std::string> known;
    for (auto const& panel : figure.panels) {
        if (!known.insert(panel.y.title).second) continue;
        text += (text.empty() ? "" : " ") + panel.y.title + " by " + panel.x.title + ":";
        std::string curves;
        for (auto const& curve : panel.curves) {
            auto const points = visible(panel, curve);
            if (points.empty()) continue;
            auto const first = points.front().y, last = points.back().y;
            curves +=
                (curves.empty() ? " " : "; ") + curve.name +
                (first == last ? formatted(" %.4g", last)
                               : formatted(" from %.4g at %s to %.4g at %s", first, tick_text(points.front().x).c_str(),
                                           last, tick_text(points.back().x).c_str()));
        }
        text += (curves.empty() ? " no values" : curves) + ".";
    }
    return text;
}

std::string plot_colour(std::size_t style) {
    static constexpr std::array colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222"};
    return colours.at(style % colours.size());
}

}  // namespace calm::apps
