/* The one-dimensional transforms of Winograd's F(4x4, 3x3), after Lavin and Gray, "Fast Algorithms for Convolutional
 * Neural Networks" (2015), with the points 0, 1, -1, 2, -2. Include "relaybuild/vector.h" first. */
#ifndef RELAYBUILD_WINOGRAD_H_
#define RELAYBUILD_WINOGRAD_H_

/* Six inputs, `step` vectors apart, to the six of the transformed domain, `out_step` apart. */
RB_INLINE void rb_winograd_input(const rb_v *d, ptrdiff_t step, rb_v *out, ptrdiff_t out_step) {
  const rb_v d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
  const rb_v even = d4 - 4.0f * d2, odd = d3 - 4.0f * d1;
  const rb_v even2 = d4 - d2, odd2 = 2.0f * (d3 - d1);
  out[0] = 4.0f * d0 - 5.0f * d2 + d4;
  out[out_step] = even + odd;
  out[2 * out_step] = even - odd;
  out[3 * out_step] = even2 + odd2;
  out[4 * out_step] = even2 - odd2;
  out[5 * out_step] = 4.0f * d1 - 5.0f * d3 + d5;
}

/* Six products, `step` vectors apart, to four outputs, `out_step` apart. */
RB_INLINE void rb_winograd_output(const rb_v *m, ptrdiff_t step, rb_v *out, ptrdiff_t out_step) {
  const rb_v m0 = m[0], m1 = m[step], m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step], m5 = m[5 * step];
  const rb_v sum = m1 + m2, difference = m1 - m2, sum2 = m3 + m4, difference2 = m3 - m4;
  out[0] = m0 + sum + sum2;
  out[out_step] = difference + 2.0f * difference2;
  out[2 * out_step] = sum + 4.0f * sum2;
  out[3 * out_step] = difference + 8.0f * difference2 + m5;
}

#endif
