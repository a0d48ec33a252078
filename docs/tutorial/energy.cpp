// The energy score on points of the plane: 200 samples learn a distribution from its draws alone. Prints where the
// samples end, and draws them to energy.svg.
#include <cmath>
#include <complex>
#include <cstdio>
#include <random>
#include <vector>

using point = std::complex<double>;

int main() {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    // The data: 70 % of the draws are near A = -1, 30 % near B = +1.
    auto const data = [&] {
        double const centre = random() % 10 < 7 ? -1 : 1;
        return point(centre + 0.15 * normal(random), 0.15 * normal(random));
    };
    struct experiment {
        char const* name;
        double repulsion, beta;  // weight of the second term, exponent of the distances
    };
    constexpr int N = 200, M = 16;
    std::FILE* const svg = std::fopen("energy.svg", "w");
    if (svg == nullptr) return 1;
    std::fputs("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 780 190\" font-family=\"sans-serif\">\n", svg);
    std::fputs("<rect width=\"780\" height=\"190\" fill=\"#fff\"/>\n", svg);
    std::puts("                  near A   near B   elsewhere");
    double left = 130;
    for (auto const& [name, repulsion, beta] :
         {experiment{"both terms", 1, 1}, experiment{"first term alone", 0, 1}, experiment{"both, beta 2", 1, 2}}) {
        // slope of |d|^beta
        auto const slope = [beta](point d) { return d == 0.0 ? d : beta * std::pow(std::abs(d), beta - 2) * d; };
        std::vector<point> x(N), y(M), dx(N);
        for (auto& each : x) each = point(0.3 * normal(random), 0.3 * normal(random));
        for (int step = 0; step < 1000; ++step) {
            for (auto& each : y) each = data();
            for (int n = 0; n < N; ++n) {
                dx[n] = 0;
                for (auto const& target : y) dx[n] += 2.0 / M * slope(x[n] - target);                // attraction
                for (auto const& other : x) dx[n] -= repulsion * 2 / (N - 1) * slope(x[n] - other);  // repulsion
            }
            for (int n = 0; n < N; ++n) x[n] -= 0.02 * dx[n];
        }
        int near_a = 0, near_b = 0;
        for (auto const& each : x) near_a += std::abs(each + 1.0) < 0.5, near_b += std::abs(each - 1.0) < 0.5;
        std::printf("%-16s %5d %%  %5d %%  %8d %%\n", name, 100 * near_a / N, 100 * near_b / N,
                    100 * (N - near_a - near_b) / N);
        std::fprintf(svg, "<text x=\"%g\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">%s</text>\n", left, name);
        auto const dots = [&](char const* colour, auto const& at) {
            std::fprintf(svg, "<path stroke=\"%s\" stroke-width=\"5\" stroke-linecap=\"round\" d=\"", colour);
            for (auto const& each : at)
                std::fprintf(svg, "M%.0f %.0fh0", left + 65 * each.real(), 105 + 65 * each.imag());
            std::fputs("\"/>\n", svg);
        };
        std::vector<point> draws(N);
        for (auto& each : draws) each = data();
        dots("#c8c8c8", draws);
        dots("#c0392b", x);
        left += 260;
    }
    std::fputs("</svg>\n", svg);
    return std::fclose(svg);
}
