#include "run/gnuplot.hpp"

#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/io/detail/replaced_directory.hpp"
#include "run/report.hpp"

namespace calm::apps {

std::string quoted(std::string const& word) {
    std::string text = "'";
    for (char const c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

std::string tick_text(double n) {
    std::string unit;
    for (auto const* const larger : {" k", " M", " G", " T"}) {
        if (std::abs(n) < 1000) break;
        n /= 1000;
        unit = larger;
    }
    return formatted("%.4g", n) + unit;
}

std::string x_axis(double most) {
    if (!(most > 0)) most = 1;
    double const decade = std::pow(10, std::floor(std::log10(most)) - 1);
    double step = decade;
    for (double const times : {2, 5, 10, 20}) {
        if (most / step <= 5) break;
        step = times * decade;
    }
    std::string ticks;
    for (int i = 0; i * step <= most * (1 + 1e-9); ++i)
        ticks += (i > 0 ? ", \"" : "\"") + tick_text(i * step) + "\" " + formatted("%.9g", i * step);
    // Ends exactly at the last point: gnuplot fails if a range excludes the only point.
    return "set xrange [0:" + formatted("%.17g", most) + "]\nset xtics (" + ticks + ")\n";
}

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

}  // namespace

plot_outcome plotted(std::string const& folder, std::string const& name, std::string const& script,
                     std::string const& result) {
    std::filesystem::path const in(folder);
    auto const path = (in / (name + ".gp")).string();
    // The script writes to a variable's file, here a temporary one: gnuplot would write through a link, and leave half
    // a picture when it fails.
    auto text = script;
    auto const output = "set output \"" + result + "\"\n";
    auto const at = text.find(output);
    require(at != std::string::npos, errc::usage, path, ": expected a script that writes ", result);
    text.replace(at, output.size(), "if (!exists(\"picture\")) picture = \"" + result + "\"\nset output picture\n");
    replace_file(path, text);
    auto const picture = (in / result).string();
    auto const part = picture + ".partial";
    ::unlink(part.c_str());
    auto const in_folder = "cd " + quoted(std::filesystem::absolute(in).string()) + " && ";
    if (std::system("command -v gnuplot >/dev/null 2>&1") != 0)
        return {"no plot: install gnuplot (Debian: apt-get install gnuplot-nox), then " + in_folder + "gnuplot " +
                name + ".gp"};
    auto const variable = quoted("picture=\"" + result + ".partial\"");
    auto const drawn = run_quietly(in_folder + "gnuplot -e " + variable + " " + name + ".gp");
    if (drawn.status != 0) {
        ::unlink(part.c_str());
        return {"no plot: gnuplot failed on " + path + (drawn.line.empty() ? "" : ": " + drawn.line)};
    }
    put_in_place(part, picture);
    return {"plotted in " + picture, true};
}

}  // namespace calm::apps
