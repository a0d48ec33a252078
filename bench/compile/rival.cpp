// The rival: two solvers of Eigen. Its time says how fast this machine compiles.
#include <Eigen/Dense>
#include <cstdio>

int main() {
    Eigen::MatrixXf const a = Eigen::MatrixXf::Random(9, 9);
    Eigen::MatrixXf const b = a * a.transpose();
    Eigen::SelfAdjointEigenSolver<Eigen::MatrixXf> const eigen(b);
    std::printf("%g\n", static_cast<double>(eigen.eigenvalues().sum() + a.partialPivLu().solve(b).norm()));
}
