// Upper limits of a device, and products at the shapes of a step.
//
//     products ceilings    # copies, launches, square products in fp32 and bf16
//     products shapes [calm-m|text|small|tiny]    # forward, gradient of the input and of the weights
//     products few         # few rows times a weight table, as in generation: the library's kernel and cuBLASLt
//
// In fp32 a shape is computed by the library, which uses the first algorithm of cuBLASLt's heuristic, and compared with
// the fastest of several listed algorithms. In bf16 the comparison has factors that are bf16 already. Each result is
// checked against the library's block kernel, which does not use cuBLASLt.

#include "../product_shapes.hpp"
#include "calm/base/bf16.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "lt_ways.hpp"

namespace {

using namespace bench;
using flat = calm::extents<calm::dyn>;
using product = calm::detail::product<float>;

constexpr double fp32_bound = 3e-5, bf16_bound = 1e-2;  // TF32 would differ by 3e-4

struct round_kernel {
    calm::bf16* to;
    float const* from;
    CALM_HD void operator()(index_t i) const { to[i] = calm::bf16(from[i]); }
};

// The factors a and b and the result of a product on the device, in fp32 and in bf16.
class operands {
public:
    // m, n, k; whether the factors are stored transposed.
    operands(device_context& ctx, index_t m, index_t n, index_t k, bool a_transposed, bool b_transposed) :
        ctx_(ctx), a_(flat(m * k)), b_(flat(k * n)), got_(flat(m * n)), want_(flat(m * n)), narrow_a_(flat(m * k)),
        narrow_b_(flat(k * n)), fp32{m,
                                     n,
                                     k,
                                     got_.data(),
                                     n,
                                     a_.data(),
                                     a_transposed ? m : k,
                                     a_transposed,
                                     b_.data(),
                                     b_transposed ? k : n,
                                     b_transposed,
                                     false},
        bf16(fp32) {
        fill_normal(ctx, a_.view(), calm::key{1});
        fill_normal(ctx, b_.view(), calm::key{2});
        for_each(ctx, m * k, round_kernel{narrow_a_.data(), a_.data()});
        for_each(ctx, k * n, round_kernel{narrow_b_.data(), b_.data()});
        auto p = fp32;
        p.c = want_.data();
        calm::detail::block_product(ctx, p);
        bf16.a = reinterpret_cast<float const*>(narrow_a_.data());
        bf16.b = reinterpret_cast<float const*>(narrow_b_.data());
    }
    void check(std::string const& name, double bound) {
        agree(name, difference_of(ctx_, got_.view(), want_.view()), bound);
        fill(ctx_, got_.view(), NAN);
    }
    [[nodiscard]] double flops() const {
        return 2.0 * static_cast<double>(fp32.m) * static_cast<double>(fp32.n) * static_cast<double>(fp32.k);
    }

private:
    using numbers = calm::tensor<float, flat, device>;
    using narrow = calm::tensor<calm::bf16, flat, device>;
    device_context& ctx_;
    numbers a_, b_, got_, want_;
    narrow narrow_a_, narrow_b_;

public:
    product fp32, bf16;  // a and b of `bf16` point to bf16 values
};

// The contexts of the library's products, and cuBLASLt alone.
struct multiplying {
    device_context ctx = context_of(false);
    device_context bf16 = context_of(true);
    lt_ways ways{ctx};
};

// Seconds of the library's product.
double time_library(multiplying& by, std::string const& name, operands& x, bool in_bf16) {
    auto const multiply = [&] { calm::detail::gemm(in_bf16 ? by.bf16 : by.ctx, x.fp32); };
    multiply();
    x.check(name, in_bf16 ? bf16_bound : fp32_bound);
    return time_of(by.ctx, multiply).median;
}

void shape(multiplying& by, std::string const& name, operands x) {
    for (bool const in_bf16 : {false, true}) {
        auto const full = name + (in_bf16 ? ", bf16" : ", fp32");
        double const ours = time_library(by, full, x, in_bf16);
        auto const listed = by.ways.measure(in_bf16 ? x.bf16 : x.fp32, in_bf16);
        if (listed.ways > 0) x.check(full + ", tuned", in_bf16 ? bf16_bound : fp32_bound);
        double const tera = x.flops() / 1e12;
        print_record("shape", full,
                     {{"library", tera / ours},
                      {"first", tera / listed.first},
                      {"tuned", tera / listed.best},
                      {"ways", static_cast<double>(listed.ways)}});
    }
}

void shapes_of(multiplying& by, std::string const& configuration, calm::configuration<> const& c, batch const& b) {
    for_product_shapes(c, b, b.autoencoder_tokens, [&](char const* what, index_t rows, index_t in, index_t out) {
        if (is_emulated) rows = 70, in = std::min<index_t>(in, 24), out = std::min<index_t>(out, 40);
        auto const name = [&](char const* form) {
            return configuration + ", " + form + ", " + what + " " + std::to_string(rows) + " x " + std::to_string(in) +
                   " x " + std::to_string(out);
        };
        shape(by, name("forward"), {by.ctx, rows, out, in, false, true});
        shape(by, name("gradient of the input"), {by.ctx, rows, in, out, false, false});
        shape(by, name("gradient of the weights"), {by.ctx, out, in, rows, true, false});
    });
}

struct empty_kernel {
    static constexpr int threads = 32;
    struct shared {};
    template <class Block> CALM_HD void operator()(Block&, shared&, index_t) const {}
};

void ceilings(multiplying& by) {
    auto& ctx = by.ctx;
    {
        index_t const count = sized(index_t{1} << 28, 1000);
        calm::tensor<float, flat, device> x{flat(count)}, y{flat(count)};
        fill_normal(ctx, x.view(), calm::key{1});
        auto const copy = [&] { calm::copy(ctx, y.view(), x.view()); };
        copy();
        agree("copy", difference_of(ctx, y.view(), x.view()), 0);
        double const moved = 8.0 * static_cast<double>(count);
        print_row("copy, 1 GiB read and written", {{"gb_per_s", moved / time_of(ctx, copy).median / 1e9}});
#ifdef __CUDACC__
        auto const by_driver = time_of(ctx, [&] {
            calm::detail::check_cuda(
                cudaMemcpyAsync(y.data(), x.data(), 4 * count, cudaMemcpyDeviceToDevice, ctx.queue()), "copying");
        });
        print_row("the same by cudaMemcpyAsync", {{"gb_per_s", moved / by_driver.median / 1e9}});
#endif
    }
    auto const launches = time_of(ctx, [&] {
        for (int i = 0; i < 100; ++i) launch(ctx, 1, empty_kernel{});
    });
    print_row("an empty kernel behind another", {{"microseconds", launches.median / 100 * 1e6}});

    index_t const side = sized(8192, 40);
    operands x(ctx, side, side, side, false, true);
    double const tera = x.flops() / 1e12;
    double const ours = time_library(by, "square, fp32", x, false);
    print_row("product 8192 x 8192 x 8192, fp32, the library's", {{"tflop_per_s", tera / ours}});
    for (bool const in_bf16 : {false, true}) {
        std::string const type = in_bf16 ? "bf16" : "fp32";
        auto const listed = by.ways.measure(in_bf16 ? x.bf16 : x.fp32, in_bf16);
        if (listed.ways == 0) continue;
        x.check("square, " + type + ", tuned", in_bf16 ? bf16_bound : fp32_bound);
        print_row("product 8192 x 8192 x 8192, " + type + ", tuned", {{"tflop_per_s", tera / listed.best}});
    }
}

void shapes(multiplying& by, std::string_view name) {
    auto const of = [&](char const* configuration, calm::configuration<> const& c, batch const& b) {
        if (name.empty() || name == configuration) shapes_of(by, configuration, c, b);
    };
    of("calm-m", calm_m, calm_m_batch);
    of("text", text, text_batch);
    of("small", small, small_batch);
    of("tiny", tiny, tiny_batch);
}

// Microseconds per product of few rows with a weight table, cycling through more tables than the cache holds, and the
// table bytes read per second. Compares the library's kernel, cuBLASLt's first algorithm, and the kernel with tables in
// bf16.
void few(multiplying& by) {
    auto& ctx = by.ctx;
    struct table {
        index_t n, k;
    };
    for (auto const& of : {table{1024, 1024}, table{2752, 1024}, table{1024, 2752}, table{1000, 1021}}) {
        index_t const n = of.n, k = of.k, size = n * k, count = sized((index_t{1} << 26) / size, 1);
        constexpr index_t most = calm::detail::most_skinny_rows;
        calm::tensor<float, flat, device> x{flat(most * k)}, w{flat(count * size)}, got{flat(most * n)},
            want{flat(most * n)};
        calm::tensor<calm::bf16, flat, device> narrow{flat(count * size)};
        fill_normal(ctx, x.view(), calm::key{1});
        fill_normal(ctx, w.view(), calm::key{2});
        copy(ctx, narrow.view(), w.view());
        copy(ctx, w.view(), narrow.view());
        for (index_t const rows : {index_t{1}, index_t{2}, index_t{4}, index_t{8}, most}) {
            auto const all = [&](auto const& tables, float* c, auto const& multiply) {
                using W = std::remove_cvref_t<decltype(*tables.data())>;
                for (index_t i = 0; i < count; ++i)
                    multiply(calm::detail::product<float, W>{rows, n, k, c, n, x.data(), k, false,
                                                             tables.data() + i * size, k, true, false});
            };
            auto const ours = [&] { all(w, got.data(), [&](auto const& p) { calm::detail::gemm(ctx, p); }); };
            auto const library = [&] {
                all(w, want.data(), [&](auto const& p) { calm::detail::stored_product(ctx, p); });
            };
            auto const in_bf16 = [&] { all(narrow, got.data(), [&](auto const& p) { calm::detail::gemm(ctx, p); }); };
            auto const name = std::to_string(rows) + " x " + std::to_string(k) + " x " + std::to_string(n);
            fill(ctx, want.view(), 0.0F);
            fill(ctx, got.view(), 0.0F);
            ours(), library();
            agree(name, difference_of(ctx, got.view(), want.view()), fp32_bound);
            copy(ctx, want.view(), got.view());
            fill(ctx, got.view(), 0.0F);
            in_bf16();
            agree(name + ", weights in bf16", difference_of(ctx, got.view(), want.view()), 0);
            auto const each = [&](auto const& f) { return time_of(ctx, f).median / static_cast<double>(count); };
            double const seconds = each(ours), seconds_in_bf16 = each(in_bf16), of_library = each(library);
            auto const bytes = static_cast<double>(size * index_t{sizeof(float)});
            print_row("few rows, " + name, {{"us", seconds * 1e6},
                                            {"gb_per_s", bytes / seconds / 1e9},
                                            {"us_bf16", seconds_in_bf16 * 1e6},
                                            {"gb_per_s_bf16", bytes / 2 / seconds_in_bf16 / 1e9},
                                            {"us_cublaslt", of_library * 1e6}});
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::string_view const part = argc == 2 || (argc == 3 && std::string_view(argv[1]) == "shapes") ? argv[1] : "";
    if (part != "ceilings" && part != "shapes" && part != "few") {
        std::fputs("usage: products ceilings|shapes [NAME]|few\n", stderr);
        return 2;
    }
    return run([&] {
        multiplying by;
        part == "ceilings" ? ceilings(by) : part == "shapes" ? shapes(by, argc == 3 ? argv[2] : "") : few(by);
    });
}
