/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises digits from C: needs the compiled library and its header, and neither Python nor relaybuild.
 *
 *   relaybuild compile digits.onnx -o build/digits.so --emit header
 *   cc -std=c11 -Ibuild recognise.c build/digits.so -Wl,-rpath,'$ORIGIN' -o build/recognise
 *   build/recognise samples/3.pgm */
#include <stdio.h>

#include "digits.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 10 };

/* Reads a plain 8x8 PGM file as values in 0..1; returns 0 when it is none. */
static int read_pgm(const char *path, float pixels[PIXELS]) {
  int width = 0, height = 0, white = 0, read = 0, value = 0;
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    return 0;
  }
  if (fscanf(file, "P2 %d %d %d", &width, &height, &white) == 3 && width == SIDE && height == SIDE && white > 0) {
    while (read < PIXELS && fscanf(file, "%d", &value) == 1) {
      pixels[read++] = (float)value / (float)white;
    }
  }
  fclose(file);
  return read == PIXELS;
}

static int best_class(const float scores[CLASSES]) {
  int best = 0;
  for (int digit = 1; digit < CLASSES; digit++) {
    best = scores[digit] > scores[best] ? digit : best;
  }
  return best;
}

static int recognise(RbInstance *instance, const char *path) {
  const RbModelInfo *info = digits_describe();
  float pixels[PIXELS], scores[CLASSES];
  if (!read_pgm(path, pixels)) {
    fprintf(stderr, "error: %s: not a plain PGM image (P2) of 8x8 pixels\n", path);
    return 1;
  }
  DLTensor image = rb_tensor(&info->inputs[0], pixels);
  DLTensor output = rb_tensor(&info->outputs[0], scores);
  const DLTensor *inputs[] = {&image};
  DLTensor *outputs[] = {&output};
  if (digits_run(instance, inputs, 1, outputs, 1) != RB_OK) {
    fprintf(stderr, "error: %s: %s\n", path, digits_last_error());
    return 1;
  }
  int digit = best_class(scores);
  printf("%s: %d (%.1f %%)\n", path, digit, 100.0 * (double)scores[digit]);
  return 0;
}

int main(int argc, char **argv) {
  RbInstance *instance = NULL;
  int failures = 0;
  if (argc < 2) {
    fprintf(stderr, "usage: %s IMAGE.pgm ...\n", argv[0]);
    return 1;
  }
  if (digits_create(1, &instance) != RB_OK) {
    fprintf(stderr, "error: %s\n", digits_last_error());
    return 1;
  }
  for (int index = 1; index < argc; index++) {
    failures += recognise(instance, argv[index]);
  }
  digits_destroy(instance);
  return failures == 0 ? 0 : 1;
}
