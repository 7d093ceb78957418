/* The order of results of the search: pages of tasks first, then commands, designs last. */

const queryStems = () => {
  const stemmer = new Stemmer();
  const query = new URLSearchParams(window.location.search).get("q") || "";
  return query.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter(Boolean)
    .map((word) => stemmer.stemWord(word));
};

// "var", because the search of Sphinx may have declared its own before.
var Scorer = {
  /* A result: name of the page, title, anchor, description, score, file. */
  score: ([name, title, anchor, description, score]) => {
    const counts = typeof taskWords === "undefined" ? undefined : taskWords[name];
    if (counts && !anchor) {
      const found = queryStems().map((stem) => Math.min(counts[stem] || 0, 20));
      if (found.length && Math.min(...found) > 0) {
        return score + 30 + 2 * found.reduce((one, other) => one + other, 0);
      }
      return score + 5;
    }
    if (name.startsWith("man/")) return score + 5;
    if (/^doc\/(design-|.*-proofs|checklists|fault|mutation|architecture)/.test(name)) return score - 10;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
