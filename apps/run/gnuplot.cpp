#include "run/gnuplot.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "calm/tensor/error.hpp"

namespace calm::apps {

std::string quoted(std::string const& word) {
    std::string text = "'";
    for (char const c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

std::string plotted(std::string const& folder, std::string const& name, std::string const& script,
                    std::string const& result) {
    std::filesystem::path const in(folder);
    auto const path = (in / (name + ".gp")).string();
    std::ofstream file(path);
    file << script;
    if (!file.flush()) throw error(errc::storage, path, "", "cannot be written; is the disk full?");
    auto const in_folder = "cd " + quoted(std::filesystem::absolute(in).string()) + " && ";
    if (std::system("command -v gnuplot >/dev/null 2>&1") != 0)
        return "no plot: install gnuplot (Debian: apt-get install gnuplot-nox), then " + in_folder + "gnuplot " + name +
               ".gp";
    if (std::system((in_folder + "gnuplot " + name + ".gp >/dev/null").c_str()) != 0)
        return "no plot: gnuplot failed on " + path;
    return "plotted in " + (in / result).string();
}

}  // namespace calm::apps
