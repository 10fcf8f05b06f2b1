/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints where the text is in each of some images, as they are and turned upside down, and which way up it is.
 *
 * Images are binary PGM files of 320x96 pixels. Four threads take images from one list; each has instances of its own
 * of both models, and computes in that one thread. */
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "detector.h"
#include "orientation.h"
#include "relaybuild/model.hpp"

namespace {

constexpr std::size_t kThreads = 4;
constexpr int kDetectorShape[] = DETECTOR_INPUT_X_SHAPE;
constexpr int kOrientationShape[] = ORIENTATION_INPUT_X_SHAPE;
constexpr int kHeight = kDetectorShape[2], kWidth = kDetectorShape[3];

struct Image {
  std::string name;
  std::vector<unsigned char> pixels;
};

struct Box {
  int left = kWidth, top = kHeight, right = -1, bottom = -1;
};

Image ReadImage(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  int width = 0, height = 0, white = 0;
  if (!(file >> kind >> width >> height >> white) || kind != "P5" || width != kWidth || height != kHeight ||
      white != 255) {
    throw std::runtime_error(path + ": not a binary PGM image (P5) of 320x96 pixels and 255 shades");
  }
  file.get();
  Image image{path, std::vector<unsigned char>(static_cast<std::size_t>(kWidth) * kHeight)};
  file.read(reinterpret_cast<char *>(image.pixels.data()), static_cast<std::streamsize>(image.pixels.size()));
  if (!file) {
    throw std::runtime_error(path + ": the image is cut short");
  }
  return image;
}

Image Turned(const Image &image) {
  return {image.name + ", turned", {image.pixels.rbegin(), image.pixels.rend()}};
}

/* The box around all pixels that are text, with a margin; empty where there are none. */
Box FindText(relaybuild::Instance &detector, const Image &image) {
  constexpr float kMean[] = {0.485f, 0.456f, 0.406f}, kDeviation[] = {0.229f, 0.224f, 0.225f};
  constexpr int kMargin = 6;
  auto value = detector.Input<float>(DETECTOR_INPUT_X).begin();
  for (int channel = 0; channel < 3; ++channel) {
    for (const unsigned char pixel : image.pixels) {
      *value++ = (static_cast<float>(pixel) / 255 - kMean[channel]) / kDeviation[channel];
    }
  }
  const auto is_text = detector.Run().Output<float>(0);
  Box box;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      if (is_text[static_cast<std::size_t>(y * kWidth + x)] > 0.3f) {
        box.left = std::min(box.left, std::max(0, x - kMargin));
        box.right = std::max(box.right, std::min(kWidth - 1, x + kMargin));
        box.top = std::min(box.top, std::max(0, y - kMargin));
        box.bottom = std::max(box.bottom, std::min(kHeight - 1, y + kMargin));
      }
    }
  }
  return box;
}

/* Whether the text in a box is upside down. The box is scaled to the model's height, and cut where it is too wide. */
bool IsTurned(relaybuild::Instance &orientation, const Image &image, const Box &box) {
  constexpr int kRows = kOrientationShape[2], kColumns = kOrientationShape[3];
  const int width = box.right - box.left + 1, height = box.bottom - box.top + 1;
  const auto input = orientation.Input<float>(ORIENTATION_INPUT_X);
  std::fill(input.begin(), input.end(), 0.0f);
  const int columns = std::min(kColumns, kRows * width / height);
  for (int channel = 0; channel < 3; ++channel) {
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < columns; ++column) {
        const int x = box.left + column * width / columns, y = box.top + row * height / kRows;
        const float pixel = image.pixels[static_cast<std::size_t>(y * kWidth + x)];
        input[static_cast<std::size_t>((channel * kRows + row) * kColumns + column)] = (pixel / 255 - 0.5f) / 0.5f;
      }
    }
  }
  const auto scores = orientation.Run().Output<float>(0);
  return scores[1] > scores[0];
}

std::string Describe(relaybuild::Instance &detector, relaybuild::Instance &orientation, const Image &image) {
  const Box box = FindText(detector, image);
  if (box.right < 0) {
    return image.name + ": no text";
  }
  std::ostringstream text;
  text << image.name << ": text from (" << box.left << ", " << box.top << ") to (" << box.right << ", " << box.bottom
       << "), " << (IsTurned(orientation, image, box) ? "upside down" : "upright");
  return text.str();
}

} // namespace

int main(int argc, char **argv) {
  try {
    std::vector<Image> images;
    for (int i = 1; i < argc; ++i) {
      images.push_back(ReadImage(argv[i]));
      images.push_back(Turned(images.back()));
    }
    std::vector<std::string> lines(images.size());
    std::atomic<std::size_t> next{0};
    std::array<std::exception_ptr, kThreads> failures;
    std::vector<std::thread> threads;
    for (std::exception_ptr &failure : failures) {
      threads.emplace_back([&] {
        try {
          const relaybuild::Options one_thread{1};
          relaybuild::Instance detector(detector_api(), one_thread), orientation(orientation_api(), one_thread);
          for (std::size_t i = next++; i < images.size(); i = next++) {
            lines[i] = Describe(detector, orientation, images[i]);
          }
        } catch (...) {
          failure = std::current_exception();
        }
      });
    }
    for (std::thread &thread : threads) {
      thread.join();
    }
    for (const std::exception_ptr &failure : failures) {
      if (failure) {
        std::rethrow_exception(failure);
      }
    }
    for (const std::string &line : lines) {
      std::cout << line << '\n';
    }
  } catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
