/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints which digit is in each of some images: plain PGM files of 8x8 pixels, white on black. */
#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>

#include "digits.h"
#include "relaybuild/model.hpp"

namespace {

using Image = std::array<float, DIGITS_INPUT_IMAGE_SIZE>;

Image ReadImage(const std::string &path) {
  constexpr int shape[] = DIGITS_INPUT_IMAGE_SHAPE;
  std::ifstream file(path);
  std::string kind;
  int width = 0, height = 0, white = 0;
  Image image{};
  if (!(file >> kind >> width >> height >> white) || kind != "P2" || height != shape[2] || width != shape[3] ||
      white <= 0) {
    throw std::runtime_error(path + ": not a plain PGM image (P2) of 8x8 pixels");
  }
  for (float &pixel : image) {
    if (!(file >> pixel)) {
      throw std::runtime_error(path + ": the image is cut short");
    }
    pixel /= static_cast<float>(white);
  }
  return image;
}

} // namespace

int main(int argc, char **argv) {
  try {
    relaybuild::Instance digits(digits_api());
    std::cout << std::fixed << std::setprecision(1);
    for (int i = 1; i < argc; ++i) {
      const auto scores = digits.Run({ReadImage(argv[i])}).Output<float>(DIGITS_OUTPUT_SCORES);
      const auto best = std::max_element(scores.begin(), scores.end());
      std::cout << argv[i] << ": " << best - scores.begin() << " (" << 100 * *best << " %)\n";
    }
  } catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
