// A word diff of two texts by their longest common subsequence: for each text its runs of [text, same].

export function differences(a, b) {
  const left = a.split(" ");
  const right = b.split(" ");
  const lengths = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      lengths[i][j] = left[i] === right[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const sides = [[], []];
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      add(sides[0], left[i++], true);
      add(sides[1], right[j++], true);
    } else if (j >= right.length || (i < left.length && lengths[i + 1][j] >= lengths[i][j + 1])) {
      add(sides[0], left[i++], false);
    } else {
      add(sides[1], right[j++], false);
    }
  }
  return sides;
}

function add(runs, word, same) {
  const last = runs[runs.length - 1];
  if (last && last[1] === same) last[0] += ` ${word}`;
  else runs.push([word, same]);
}
