// Loading a model of any layout takes at most the memory of its weights plus 64 MiB: no reader holds them twice.

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "calm/io/convert_model.hpp"
#include "calm/io/describe_model.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/save_model.hpp"
#include "calm/model/owned_model.hpp"
#include "support/memory_of_process.hpp"
#include "support/sanitized.hpp"
#include "support/small.hpp"
#include "support/temporary_folder.hpp"
#include "support/torch_file.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr autoencoder_configuration wide = [] {
    auto sizes = small.autoencoder;
    sizes.hidden_size = 32;
    return sizes;
}();
// 80 MiB of F32, so two copies exceed the limit.
constexpr index_t vocabulary = is_sanitized ? 1000 : 5 << 17;
constexpr rlim_t allowance = rlim_t{64} << 20;

// Loads in a process limited to `bytes` of additional memory. Returns its exit status: 0 if the weights are right.
int status_of_loading(std::string const& directory, rlim_t bytes, float last) {
    pid_t const child = ::fork();
    if (child != 0) {
        int status = 0;
        BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    int status = 1;
    try {
        rlimit const limit{data_of_process() + bytes, RLIM_INFINITY};
        if (!is_sanitized && ::setrlimit(RLIMIT_DATA, &limit) != 0) throw std::runtime_error("no limit");
        auto const from = read_model_description(directory);
        owned_model<autoencoder<wide>> own(from.vocabulary(), model_mode::inference);
        load_model(from, own.model);
        auto const& table = own.model.embed_tokens.weight.value;
        status = table[0] == 1.0F && table[table.size() - 1] == last ? 0 : 2;
    } catch (std::exception const& wrong) {
        std::fprintf(stderr, "%s\n", wrong.what());
    }
    ::_exit(status);
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_layout_is_held_twice) {
    temporary_folder const folder;
    auto const single = folder.path("single"), sharded = folder.path("sharded"), rounded = folder.path("rounded"),
               torch = folder.path("torch");
    rlim_t weights = 0;
    {
        owned_model<autoencoder<wide>> own(vocabulary, model_mode::inference);
        auto& table = own.model.embed_tokens.weight.value;
        table[0] = 1;
        table[table.size() - 1] = 3;
        save_model(single, own.model, describe_model<wide>(vocabulary, {}, {}));
        weights = static_cast<rlim_t>(count_parameters(own.model)) * sizeof(float);
    }
    convert_model(single, sharded, {.as = {}, .shard_bytes = 1000});
    convert_model(single, rounded, {.as = stored_type::bf16});
    std::filesystem::create_directory(torch);
    std::filesystem::copy(single + "/config.json", torch + "/config.json");
    static_cast<void>(folder.with("torch/pytorch_model.bin", as_torch_file(single + "/model.safetensors")));
    BOOST_TEST(!std::filesystem::exists(sharded + "/model.safetensors"));

    for (auto const& directory : {single, sharded, rounded, torch})
        BOOST_TEST(status_of_loading(directory, weights + allowance, 3) == 0, directory);
    // The limit is effective: the weights alone exceed the allowance.
    if (!is_sanitized) BOOST_TEST(status_of_loading(single, allowance, 3) == 1);
}
