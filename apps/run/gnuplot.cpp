#include "run/gnuplot.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/number_text.hpp"
#include "calm/base/detail/shell_word.hpp"
#include "calm/base/quoted.hpp"

namespace calm::apps {

namespace {

// A command's exit status, 0 on success, and the last non-blank line of its standard error.
struct complaint {
    int status;
    std::string line;
};
complaint run_quietly(std::string const& command) {
    constexpr std::size_t most = 4000;  // bytes per line
    auto* const errors = ::popen(("{ " + command + "; } 2>&1 >/dev/null").c_str(), "re");
    if (errors == nullptr) return {-1, "the shell cannot be started"};
    std::string line, last;
    auto const end = [&] {
        if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
        line.clear();
    };
    for (int c = std::fgetc(errors); c != EOF; c = std::fgetc(errors)) {
        if (c == '\n')
            end();
        else if (line.size() < most)
            line += static_cast<char>(c);
    }
    end();
    return {::pclose(errors), last};
}

// In single quotes gnuplot interprets only a quote.
std::string gnuplot_text(std::string const& text) {
    std::string out = "'";
    for (char const c : printable_line(text)) out += c == '\'' ? std::string("''") : std::string(1, c);
    return out + "'";
}

std::string gnuplot_axis(char const* name, std::string const& title, axis_scale const& scale) {
    std::string ticks;
    for (auto const& tick : scale.ticks)
        ticks += (ticks.empty() ? "" : ", ") + gnuplot_text(tick.text) + " " + shortest(tick.at);
    auto const axis = std::string(name);
    return "set " + axis + "label " + gnuplot_text(title) + "\nset " + axis + "range [" + shortest(scale.low) + ":" +
           shortest(scale.high) + "]\nset " + axis + "tics (" + ticks + ")\n" +
           (scale.logarithm != 0 ? "set logscale " + axis + " " + std::to_string(scale.logarithm)
                                 : "unset logscale " + axis) +
           "\n";
}

std::string gnuplot_panel(plot_panel const& panel, std::size_t number) {
    constexpr int shapes[] = {7, 5, 9, 13};
    std::ostringstream data;
    std::string plots;
    auto const add = [&](std::string const& plot) { plots += (plots.empty() ? "plot " : ", \\\n     ") + plot; };
    for (std::size_t i = 0; i < panel.curves.size(); ++i) {
        auto const& curve = panel.curves[i];
        auto const points = visible(panel, curve);
        if (points.empty()) continue;
        auto const block = "$curve_" + std::to_string(number) + "_" + std::to_string(i);
        data << block << " << end\n";
        bool errors = false;
        for (auto const& p : points) {
            data << shortest(p.x) << ' ' << shortest(p.y) << ' ' << shortest(p.error) << '\n';
            errors = errors || p.error > 0;
        }
        data << "end\n";
        auto const colour = " linecolor rgb '" + plot_colour(curve.style) + "'";
        if (errors)
            add(block +
                (curve.band ? " using 1:($2-$3):($2+$3) with filledcurves fillstyle transparent solid 0.2"
                            : " using 1:2:3 with yerrorbars pointtype 0") +
                colour + " notitle");
        bool const dots = curve.dots || points.size() == 1;
        add(block + " using 1:2 with " +
            (!curve.line ? "points"
             : dots      ? "linespoints"
                         : "lines") +
            colour + (curve.line ? curve.dashed ? " dashtype 2" : " linewidth 2" : "") +
            (dots ? " pointtype " + std::to_string(shapes[curve.style % 4]) : "") + " title " +
            gnuplot_text(curve.name));
    }
    // A plot of nothing would fail.
    if (plots.empty()) plots = "plot NaN notitle";
    return data.str() + gnuplot_axis("x", panel.x.title, scale_of_x(panel)) +
           gnuplot_axis("y", panel.y.title, scale_of_y(panel)) + plots + "\n";
}

}  // namespace

std::string gnuplot_script(plot_figure const& figure, std::string const& result) {
    auto const columns = std::max<std::size_t>(1, std::min(figure.columns, figure.panels.size()));
    auto const rows = (figure.panels.size() + columns - 1) / columns;
    // Equal margins, in characters, align the axes of plots below each other. Keys are drawn in the upper margin. The
    // picture's name is a variable, so that a temporary one can be given: gnuplot would write through a link, and leave
    // half a picture when it fails.
    auto text = "# gnuplot " + std::filesystem::path(result).stem().string() +
                ".gp, in this folder\nif (!exists(\"picture\")) picture = \"" + result +
                "\"\nset terminal pngcairo noenhanced size " + std::to_string(480 * columns) + "," +
                std::to_string(400 * rows + 30) + "\nset output picture\nset multiplot layout " + std::to_string(rows) +
                "," + std::to_string(columns) + " title " + gnuplot_text(figure.title) +
                "\nset grid\nset lmargin 10\nset rmargin 4\nset tmargin 4\nset bmargin 4\n"
                "set key above horizontal samplen 1\n";
    for (std::size_t i = 0; i < figure.panels.size(); ++i) text += gnuplot_panel(figure.panels[i], i);
    return text;
}

plot_outcome plotted_as_png(plot_figure const& figure, std::string const& folder, std::string const& name) {
    std::filesystem::path const in(folder);
    auto const result = name + ".png";
    auto const path = (in / (name + ".gp")).string();
    replace_file(path, gnuplot_script(figure, result));
    auto const picture = (in / result).string();
    auto const part = picture + ".partial";
    ::unlink(part.c_str());
    if (std::system("command -v gnuplot >/dev/null 2>&1") != 0)
        return {"no plot: a png needs gnuplot; install it (Debian: apt-get install gnuplot-nox), or use --format svg"};
    auto const variable = shell_word("picture=\"" + result + ".partial\"");
    auto const drawn = run_quietly("cd " + shell_word(std::filesystem::absolute(in).string()) + " && gnuplot -e " +
                                   variable + " " + shell_word(name + ".gp"));
    if (drawn.status != 0) {
        ::unlink(part.c_str());
        return {"no plot: gnuplot failed on " + path + (drawn.line.empty() ? "" : ": " + drawn.line)};
    }
    put_in_place(part, picture);
    return {"plotted in " + picture, true};
}

}  // namespace calm::apps
