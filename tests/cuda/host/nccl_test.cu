// NCCL itself: it links, makes a key, and reports in time that there is no GPU. tests/ranks tests nccl_transport.
#include "calm/ranks/nccl.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "calm/ranks/thread_ranks.hpp"
#include "on_device.hpp"

using namespace calm::test;

namespace {

void a_key_is_made_without_a_gpu() {
    int version = 0;
    check(ncclGetVersion(&version) == ncclSuccess && version >= 21400, "NCCL 2.14 or later, whose calls need not wait");
    calm::nccl_library library(nullptr, 0);
    ncclUniqueId one{}, other{};
    check(library.make_key(one) == calm::nccl_state::done, library.why().c_str());
    check(library.make_key(other) == calm::nccl_state::done, library.why().c_str());
    check(std::memcmp(&one, &other, sizeof one) != 0, "keys differ");
    library.abort();  // nothing to abort
}

// On a GPU that no machine has.
void ranks_without_a_gpu_are_told() {
    auto const begun = std::chrono::steady_clock::now();
    check_refused("two ranks without a GPU", calm::errc::distributed, [] {
        calm::on_ranks(2, [](calm::process_group& ranks) {
            ranks.timeout = 20;
            try {
                calm::nccl_devices const devices(ranks, calm::nccl_library(nullptr, 4096));
            } catch (calm::error const& e) {
                std::string const said = e.what();
                check(said.find("expected NCCL to begin, found: ") != std::string::npos, said.c_str());
                std::printf("%s\n", said.c_str());
                throw;
            }
        });
    });
    check(std::chrono::steady_clock::now() - begun < std::chrono::seconds(15), "no rank waits");
}

// With a GPU, one rank begins, exchanges without peers, and ends.
void one_rank_begins_and_ends() {
    calm::context<calm::cuda> const ctx;
    calm::on_ranks(1, [&](calm::process_group& ranks) {
        ranks.timeout = 60;
        calm::nccl_devices const devices(ranks, calm::nccl_library(ctx.queue(), ctx.device()));
        check(ranks.devices == &devices, "NCCL is what the rank has");
        std::vector<calm::process_group::sent> const to(1);
        std::vector<calm::process_group::received> const from(1);
        for (int i = 0; i < 2; ++i) ranks.exchange_on_devices(to, from);
        ranks.wait_on_devices();
    });
}
// The NCCL call itself also fails in time without a GPU.
void nccl_without_a_gpu_fails_in_time() {
    ncclUniqueId key{};
    ncclComm_t communicator = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclGetUniqueId(&key) == ncclSuccess, "a key");
    auto const now = ncclCommInitRankConfig(&communicator, 1, key, 0, &config);
    check(now != ncclSuccess && now != ncclInProgress, ncclGetErrorString(now));
}

}  // namespace

int main() {
    a_key_is_made_without_a_gpu();
    ranks_without_a_gpu_are_told();
    if (calm::no_device_reason().empty())
        one_rank_begins_and_ends();
    else
        nccl_without_a_gpu_fails_in_time();
    return failures == 0 ? 0 : 1;
}
