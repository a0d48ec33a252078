// PROGRAM starts the best of the programs PROGRAM.<level> next to it that this processor supports. The environment
// variable CALM_INSTRUCTIONS selects a level. The launcher runs on any x86-64 processor (cmake/calm-portable.cmake).

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

namespace {

struct level {
    char const* name;
    bool usable;  // on this processor
};

// Ordered from best to most basic.
std::array<level, 4> levels() {
    __builtin_cpu_init();
    bool const v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
    bool const v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    bool const bf16 = v4 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
    return {{{"x86-64-v4-bf16", bf16}, {"x86-64-v4", v4}, {"x86-64-v3", v3}, {"x86-64", true}}};
}

// Exit statuses, equal to calm::errc.
constexpr int usage = 2;
constexpr int device = 11;

}  // namespace

int main(int, char** argv) {
    char const* const name = program_invocation_short_name;
    char const* const asked = std::getenv("CALM_INSTRUCTIONS");
    std::error_code unknown;
    auto const self = std::filesystem::read_symlink("/proc/self/exe", unknown).string();
    if (unknown) {
        std::fprintf(stderr, "%s: expected /proc/self/exe to say where this program is, found: %s; mount /proc\n", name,
                     unknown.message().c_str());
        return device;
    }
    bool known = asked == nullptr;
    for (auto const& one : levels()) {
        if (asked != nullptr && std::strcmp(asked, one.name) != 0) continue;
        known = true;
        auto const program = self + "." + one.name;
        if (one.usable) ::execv(program.c_str(), argv);
        if (asked == nullptr) continue;
        if (one.usable)
            std::fprintf(stderr, "%s: CALM_INSTRUCTIONS asks for %s, but %s cannot be started: %s\n", name, one.name,
                         program.c_str(), std::strerror(errno));
        else
            std::fprintf(stderr, "%s: CALM_INSTRUCTIONS asks for %s, but this processor lacks its instructions\n", name,
                         one.name);
        return device;
    }
    if (!known) {
        std::fprintf(stderr,
                     "%s: CALM_INSTRUCTIONS: expected x86-64-v4-bf16, x86-64-v4, x86-64-v3 or x86-64; unset it for "
                     "the best\n",
                     name);
        return usage;
    }
    std::fprintf(stderr,
                 "%s: expected %s.x86-64-v4-bf16, .x86-64-v4, .x86-64-v3 or .x86-64 beside %s, one that this processor "
                 "has the instructions for: copy them along\n",
                 name, name, self.c_str());
    return device;
}
