#pragma once
// Memory of this process, in bytes.

#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>

namespace calm::test {

// The value of a line "NAME: N kB" of /proc/self/FILE.
inline std::size_t memory_of_process(char const* file, std::string const& name) {
    std::ifstream in(std::string("/proc/self/") + file);
    std::string word;
    std::size_t kilobytes = 0;
    while (in >> word && word != name + ":") {
    }
    if (!(in >> kilobytes)) throw std::runtime_error("no " + name + " in /proc/self/" + file);
    return kilobytes * 1024;
}

// Resident bytes without those of files. smaps_rollup counts pages; /proc/self/status adds late.
inline std::size_t resident_without_files() {
    return memory_of_process("smaps_rollup", "Anonymous");
}

// Resident bytes of mapped files.
inline std::size_t resident_of_files() {
    return memory_of_process("smaps_rollup", "Rss") - resident_without_files();
}

// Private writable bytes, resident or not, which RLIMIT_DATA limits.
inline std::size_t data_of_process() {
    return memory_of_process("status", "VmData");
}

}  // namespace calm::test
