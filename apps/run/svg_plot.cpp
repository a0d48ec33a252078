#include "run/svg_plot.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/detail/utf8.hpp"
#include "calm/base/quoted.hpp"

namespace calm::apps {

namespace {

// Lengths are in pixels.
constexpr double font_pixels = 12, line_height = 16, title_height = 34;
constexpr double panel_left = 58, panel_right = 18, panel_below = 44;  // around the plot of a panel
constexpr double plot_width = static_cast<double>(panel_columns), plot_height = 190;
constexpr double panel_width = panel_left + plot_width + panel_right;
// An entry of a legend is a sample of the curve, a gap, the name, and space before the next entry.
constexpr double legend_sample = 18, legend_gap = 4, legend_space = 10, legend_width = plot_width + panel_right;

// At least the width of a text in a common sans-serif font.
double text_width(std::string_view text) {
    auto const characters =
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<std::uint8_t>(c) & 0xc0U) != 0x80U; });
    return 0.6 * font_pixels * static_cast<double>(characters);
}

// The end of a text that is too wide.
std::string fitting(std::string const& text, double width) {
    if (text_width(text) <= width) return text;
    auto const most = static_cast<std::size_t>(width / text_width("x")) - 3;
    auto rest = std::string_view(text).substr(text.size() - std::min(text.size(), most));
    while (!rest.empty() && (static_cast<std::uint8_t>(rest[0]) & 0xc0U) == 0x80U) rest.remove_prefix(1);
    return "..." + std::string(rest);
}

std::string px(double length) {
    return shortest(std::round(10 * length) / 10);
}

std::string text_at(double x, double y, std::string_view attributes, std::string_view text) {
    return "<text x=\"" + px(x) + "\" y=\"" + px(y) + "\"" + std::string(attributes) + ">" + xml_text(text) +
           "</text>\n";
}

struct point_on_page {
    double x, y;
};

// A dot of 3.5 pixels' radius; its shape differs from the next styles' too.
std::string dot(point_on_page at, std::size_t style) {
    auto const [x, y] = at;
    switch (style % 4) {
    case 0:
        return "<circle cx=\"" + px(x) + "\" cy=\"" + px(y) + "\" r=\"3.5\"/>";
    case 1:
        return "<path d=\"M" + px(x - 3) + " " + px(y - 3) + "h6v6h-6z\"/>";
    case 2:
        return "<path d=\"M" + px(x) + " " + px(y - 4) + "l4 7h-8z\"/>";
    default:
        return "<path d=\"M" + px(x) + " " + px(y - 4.5) + "l4.5 4.5-4.5 4.5-4.5-4.5z\"/>";
    }
}

std::string stroke(plot_curve const& curve) {
    return " fill=\"none\" stroke-linejoin=\"round\" stroke=\"" + plot_colour(curve.style) + "\"" +
           (curve.dashed ? " stroke-width=\"1.5\" stroke-dasharray=\"5 3\"" : " stroke-width=\"1.8\"");
}

struct legend_entry {
    plot_curve const* curve;
    std::string name;
    [[nodiscard]] double width() const { return legend_sample + legend_gap + text_width(name) + legend_space; }
};

// Rows of entries that fit next to each other.
std::vector<std::vector<legend_entry>> legend_of(plot_panel const& panel) {
    std::vector<std::vector<legend_entry>> rows;
    double used = 0;
    for (auto const& curve : panel.curves) {
        if (curve.name.empty() || visible(panel, curve).empty()) continue;
        legend_entry const entry{&curve, fitting(curve.name, legend_width - legend_sample - legend_gap)};
        if (rows.empty() || used + entry.width() > legend_width + legend_space) {
            rows.emplace_back();
            used = 0;
        }
        used += entry.width();
        rows.back().push_back(entry);
    }
    return rows;
}

class drawn_panel {
public:
    // `top` is the height of the title and the legend.
    drawn_panel(plot_panel const& panel, point_on_page corner, double top) :
        panel_(panel), x_(scale_of_x(panel)), y_(scale_of_y(panel)), at_{corner.x + panel_left, corner.y + top},
        corner_(corner) {}

    [[nodiscard]] std::string svg() const {
        std::string text = text_at(at_.x, corner_.y + 12, " font-weight=\"bold\"", panel_.y.title) + legend() + axes();
        bool empty = true;
        for (auto const& curve : panel_.curves) {
            auto const points = visible(panel_, curve);
            empty = empty && points.empty();
            text += drawn(curve, points);
        }
        if (empty)
            text += text_at(at_.x + plot_width / 2, at_.y + plot_height / 2, " text-anchor=\"middle\"", "no values");
        return text;
    }

private:
    [[nodiscard]] point_on_page place(double x, double y) const {
        return {at_.x + plot_width * x_.place(x), at_.y + plot_height * (1 - y_.place(y))};
    }

    [[nodiscard]] std::string legend() const {
        std::string text;
        double y = corner_.y + 12 + line_height;
        for (auto const& row : legend_of(panel_)) {
            double x = at_.x;
            for (auto const& entry : row) {
                auto const& curve = *entry.curve;
                double const middle = y - 4;
                if (curve.line)
                    text += "<path d=\"M" + px(x) + " " + px(middle) + "h" + px(legend_sample) + "\"" + stroke(curve) +
                            "/>";
                if (curve.dots)
                    text += "<g fill=\"" + plot_colour(curve.style) + "\">" +
                            dot({x + legend_sample / 2, middle}, curve.style) + "</g>";
                text += text_at(x + legend_sample + legend_gap, y, "", entry.name);
                x += entry.width();
            }
            y += line_height;
        }
        return text;
    }

    [[nodiscard]] std::string axes() const {
        std::string grid, labels;
        double const bottom = at_.y + plot_height;
        for (auto const& tick : y_.ticks) {
            double const y = bottom - plot_height * y_.place(tick.at);
            grid += "M" + px(at_.x) + " " + px(y) + "h" + px(plot_width);
            labels += text_at(at_.x - 6, y + 4, " text-anchor=\"end\"", tick.text);
        }
        for (auto const& tick : x_.ticks) {
            double const x = at_.x + plot_width * x_.place(tick.at);
            grid += "M" + px(x) + " " + px(at_.y) + "v" + px(plot_height);
            labels += text_at(x, bottom + line_height, " text-anchor=\"middle\"", tick.text);
        }
        return "<path d=\"" + grid + "\" stroke=\"#e4e4e4\" fill=\"none\"/>\n<path d=\"M" + px(at_.x) + " " +
               px(at_.y) + "v" + px(plot_height) + "h" + px(plot_width) + "\" stroke=\"#777\" fill=\"none\"/>\n" +
               labels +
               text_at(at_.x + plot_width / 2, bottom + 2 * line_height + 2, " text-anchor=\"middle\"", panel_.x.title);
    }

    [[nodiscard]] std::string drawn(plot_curve const& curve, std::vector<plot_point> const& points) const {
        std::string line, band, bars, dots;
        for (auto const& p : points) {
            auto const [x, y] = place(p.x, p.y);
            line += (line.empty() ? "" : " ") + px(x) + "," + px(y);
            if (curve.dots) dots += dot({x, y}, curve.style);
            if (p.error > 0 && !curve.band)
                bars += "M" + px(x) + " " + px(place(p.x, p.y - p.error).y) + "V" + px(place(p.x, p.y + p.error).y);
        }
        if (curve.band && points.size() > 1) {
            auto const add = [&](double x, double y) {
                auto const at = place(x, y);
                band += (band.empty() ? "" : " ") + px(at.x) + "," + px(at.y);
            };
            for (auto const& p : points) add(p.x, p.y + p.error);
            for (auto p = points.rbegin(); p != points.rend(); ++p) add(p->x, p->y - p->error);
        }
        std::string text;
        if (!band.empty())
            text +=
                "<polygon points=\"" + band + "\" fill=\"" + plot_colour(curve.style) + "\" fill-opacity=\"0.2\"/>\n";
        if (!bars.empty()) text += "<path d=\"" + bars + "\"" + stroke(curve) + "/>\n";
        // A line of one point would be invisible.
        if (curve.line && points.size() == 1 && !curve.dots) dots = dot(place(points[0].x, points[0].y), curve.style);
        if (curve.line && points.size() > 1) text += "<polyline points=\"" + line + "\"" + stroke(curve) + "/>\n";
        if (!dots.empty()) text += "<g fill=\"" + plot_colour(curve.style) + "\">" + dots + "</g>\n";
        return text;
    }

    plot_panel const& panel_;
    axis_scale x_, y_;
    point_on_page at_;  // the upper left corner of the plot within the panel
    point_on_page corner_;
};

}  // namespace

std::string xml_text(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        auto const [kind, size] = first_character(text);
        bool const whole = kind == utf8_kind::character;
        auto const c = whole ? code_point(text.substr(0, size)) : 0;
        bool const allowed = (c >= 0x20 || c == '\t' || c == '\n' || c == '\r') && c != 0xfffe && c != 0xffff;
        if (!whole || !allowed)
            out += "\xef\xbf\xbd";
        else if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '"')
            out += "&quot;";
        else
            out += text.substr(0, size);
        text.remove_prefix(whole ? size : 1);
    }
    return out;
}

std::string svg_of(plot_figure const& figure) {
    auto const columns = std::max<std::size_t>(1, std::min(figure.columns, figure.panels.size()));
    double const width = panel_width * static_cast<double>(columns);
    std::string panels;
    double y = title_height;
    for (std::size_t first = 0; first < figure.panels.size(); first += columns) {
        auto const end = std::min(first + columns, figure.panels.size());
        std::size_t rows = 0;
        for (auto i = first; i < end; ++i) rows = std::max(rows, legend_of(figure.panels[i]).size());
        double const top = 12 + line_height * static_cast<double>(rows) + 10;
        for (auto i = first; i < end; ++i)
            panels += drawn_panel(figure.panels[i], {panel_width * static_cast<double>(i - first), y}, top).svg();
        y += top + plot_height + panel_below;
    }
    auto const size = px(width) + " " + px(y);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + px(width) + "\" height=\"" + px(y) +
           "\" viewBox=\"0 0 " + size + "\" role=\"img\" font-family=\"Helvetica,Arial,sans-serif\" font-size=\"" +
           px(font_pixels) + "\" fill=\"#222\">\n<title>" + xml_text(figure.title) + "</title>\n<desc>" +
           xml_text(figure_in_words(figure)) + "</desc>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" +
           text_at(12, 20, " font-size=\"15\" font-weight=\"bold\"", fitting(figure.title, 0.75 * width)) + panels +
           "</svg>\n";
}

}  // namespace calm::apps
