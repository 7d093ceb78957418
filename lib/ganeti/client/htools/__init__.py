"""The placement programs: hail, hbal, hcheck, hinfo, hroller, hscan, hspace, hsqueeze and harep."""
